/* bbr3: BBR version 3
 *
 * Cardwell, Swett and Beshay (editors), "BBR Congestion Control", draft-ietf-ccwg-bbr-02, 2025; section numbers below
 * are of this draft. Volumes are in segments, rates in bytes of data per second. Products of rate and delay are rounded
 * up, everything else down.
 *
 * Where the draft is ambiguous:
 * - Drain paces with a gain of 0.35 (2.5 and 4.3.2), not 0.5 (4.6.1 and later drafts).
 * - The bandwidth filter advances once, one round after ProbeBW_UP (4.5.6), not in every later round (4.3.3.6).
 * - Losses reduce inflight_longterm until that round (text of 4.5.10.2), not during the whole cycle.
 * - inflight_longterm does not bound the window in Drain (4.6.4.7, not 4.6.1).
 * - ProbeRTT keeps half of the bandwidth-delay product in flight (pseudo-code of 4.6.4.5), not four segments.
 *
 * Deviations because there is no state per segment:
 * - tx_in_flight of a segment is the number of segments delivered or lost between its transmission and its
 *   acknowledgement.
 * - rs.lost is exact to an eighth of a round: the losses so far are recorded eight times a round.
 * - All losses found by one acknowledgement count as one lost packet of 4.5.10.2, and as one of the six lost ranges
 *   that end Startup (4.3.1.3). A timeout counts as one loss.
 * Deviations because there is no event at transmission:
 * - A restart from idle (4.4.1) is detected at its first acknowledgement: during the first round trip the pacing gain
 *   is the previous state's, and ProbeRTT ends one round trip later.
 * Other deviations:
 * - The send quantum (4.6.3) is chosen by TCP, also about 1 ms of the pacing rate; here it only affects the window.
 * - extra_acked is the maximum over 5 to 10 rounds, not 10; in Startup over 1 to 2 rounds, not 1.
 * - A cycle without a bandwidth sample does not advance the bandwidth filter.
 * - The random waiting times (4.3.3.5.2) are derived from the clock.
 * - As in Google's module, the probe after one that met too many losses ends when inflight_longterm is in flight; if a
 *   round passes without too many losses, the next one begins. Else a queue of 1 BDP had three times the delay.
 * There is no reaction to ECN, as in the draft.
 *
 * Compared: Google's v3 module, 20 Mbit/s, 1, 2, 4 flows: throughput 1.00; queue 3.4, 38, 53 ms for 2.7, 42, 53
 */
#define LAW_OWNS_WINDOW
#include "law.h"

/* Gains, per cent. */
#define BBR3_STARTUP_PACING 277	/* 4 ln 2 (2.5) */
#define BBR3_DRAIN_PACING 35	/* 2.5, 4.3.2 */
#define BBR3_DOWN_PACING 90	/* 4.3.3.1 */
#define BBR3_UP_PACING 125	/* 4.3.3.4 */
#define BBR3_WINDOW 200		/* 2.6 */
#define BBR3_UP_WINDOW 225	/* 4.3.3.4 */
#define BBR3_PROBE_RTT_WINDOW 50	/* 2.14.2 */
#define BBR3_MARGIN 99		/* 4.6.2: 1 % below the bandwidth */
#define BBR3_LOSS 2		/* tolerated losses of a round, per cent (2.8) */
#define BBR3_BETA 70		/* 2.8 */
#define BBR3_HEADROOM 15	/* 2.8 */
#define BBR3_GROWTH 125		/* the bandwidth still grows (4.3.1.2) */

#define BBR3_FULL_ROUNDS 3	/* rounds without such growth (4.3.1.2) */
#define BBR3_LOSS_EVENTS 6	/* 4.3.1.3 */
#define BBR3_LEAST 4		/* segments (2.8) */
#define BBR3_RENO_ROUNDS 63	/* rounds between probes at most (4.3.3.5.2) */
#define BBR3_WAIT_US 2000000	/* 2 to 3 s between probes (4.3.3.5.2) */
#define BBR3_WAIT_RANGE_US 1000000
#define BBR3_SLOPE_ROUNDS 30	/* 4.3.3.6 */
#define BBR3_MIN_RTT_US 10000000	/* MinRTTFilterLen (2.14.1) */
#define BBR3_PROBE_RTT_US 5000000	/* ProbeRTTInterval (2.14.2) */
#define BBR3_PROBE_RTT_LASTS_US 200000	/* ProbeRTTDuration (2.14.2) */
#define BBR3_EXTRA_ROUNDS 5	/* half of BBRExtraAckedFilterLen (2.12) */
#define BBR3_FIRST_RTT_US 1000	/* assumed before there is one (4.6.2) */
#define BBR3_FIRST_MSS 1448	/* likewise */
#define BBR3_QUANTUM 65536u	/* bytes (4.6.3) */
#define BBR3_QUANTA 3		/* 4.5.8 */
/* Below any window, so that LAW_WINDOW_LIMITED means a filled window. In slow start half of a window is enough. */
#define BBR3_SSTHRESH 2

#define BBR3_MARKS 16u		/* of losses: two rounds */
#define BBR3_MARKS_PER_ROUND 8

#define BBR3_INFINITY 0xffffffffu
#define BBR3_INFINITE_RATE 0xffffffffffffffffull

enum bbr3_state { BBR3_STARTUP, BBR3_DRAIN, BBR3_DOWN, BBR3_CRUISE, BBR3_REFILL, BBR3_UP, BBR3_PROBE_RTT };

/* The losses so far when so many segments were delivered. */
struct bbr3_mark {
	u32 delivered;
	u32 lost;
};

struct law {
	u64 max_bw[2];		/* maxima of the previous and of this cycle */
	u64 bw_shortterm;
	u64 bw_latest;
	u64 full_bw;
	u64 min_rtt_at_us;
	u64 probe_rtt_min_at_us;
	u64 probe_rtt_done_us;	/* 0: not yet drained */
	u64 cycle_us;		/* bw_probe_wait counts from here */
	u64 extra_since_us;
	u32 min_rtt_us;
	u32 probe_rtt_min_us;
	u32 inflight_longterm;
	u32 inflight_shortterm;
	u32 inflight_latest;
	u32 tx_in_flight;
	u32 state;
	u32 pacing_gain;
	u32 window_gain;
	u32 mss;
	u32 initial;		/* the first window */
	u32 prior_cwnd;		/* before losses or ProbeRTT */
	u32 delivered;
	u32 round_end;		/* a round ends when a segment sent after so many deliveries is delivered */
	u32 loss_round_end;	/* likewise for the loss round */
	u32 lost;		/* so far */
	u32 recent_lost;	/* since the newest acknowledged segment was sent: rs.lost */
	u32 newest_mark;
	u32 loss_events;	/* acknowledgements with losses in the loss round */
	struct bbr3_mark marks[BBR3_MARKS];
	u32 full_count;
	u32 rounds_since_probe;
	u32 wait_us;
	u32 up_rounds;
	u32 up_acks;
	u32 up_count;		/* acknowledged segments for which inflight_longterm grows by one */
	u32 extra_acked[2];	/* maxima of the previous and of these rounds */
	u32 extra_delivered;
	u32 extra_rounds;
	u32 limited_until;	/* samples of segments sent before so many deliveries are limited by ProbeRTT */
	unsigned char started;
	unsigned char full_now;
	unsigned char full_reached;
	unsigned char probe_samples;	/* losses count as a probe's */
	unsigned char stopping;	/* the samples of a probe end with this round: ACKS_PROBE_STOPPING */
	unsigned char was_high;	/* the last probe met too many losses: prev_probe_too_high */
	unsigned char resuming;	/* the last probe ended at inflight_longterm: stopped_risky_probe */
	unsigned char loss_in_round;
	unsigned char repairing;
	unsigned char idle;	/* nothing was in flight after the last acknowledgement */
	unsigned char limited;	/* limited_until counts */
	unsigned char probe_rtt_expired;
	unsigned char probe_rtt_round_done;
	/* Of this acknowledgement. Volatile: the kernel's verifier need not follow their combinations. */
	volatile unsigned char is_limited;
	volatile unsigned char round_start;
	volatile unsigned char loss_round_start;
	volatile unsigned char loss_is_high;
};
#define LAW_SHOWN(show) show(state) show(min_rtt_us) show(bw_latest) show(inflight_longterm)

/* An acknowledgement and what follows from it alone. */
struct bbr3_ack {
	const struct sample *sample;
	u64 rate;
	u32 prior;		/* deliveries when the newest segment that it acknowledges was sent */
	u32 sampled;
};

LAW_INLINE u64 bbr3_max_bw(const struct law *law)
{
	return law->max_bw[0] > law->max_bw[1] ? law->max_bw[0] : law->max_bw[1];
}

LAW_INLINE u64 bbr3_bw(const struct law *law)
{
	u64 bw = bbr3_max_bw(law);

	return bw < law->bw_shortterm ? bw : law->bw_shortterm;
}

/* BBRBDPMultiple (4.6.4.2). */
LAW_INLINE u32 bbr3_bdp(const struct law *law, u64 bw, u32 gain)
{
	u64 unit = 1000000ull * law->mss, segments;

	if (law->min_rtt_us == BBR3_INFINITY)
		return law->initial;
	segments = (bw * gain / 100 * law->min_rtt_us + unit - 1) / unit;
	return segments < LAW_LARGEST ? (u32)segments : LAW_LARGEST;
}

/* BBRQuantizationBudget (4.6.4.2). */
LAW_INLINE u32 bbr3_with_budget(const struct law *law, const struct window *window, u32 segments)
{
	u64 quantum = window->pacing_rate / 1000;

	if (quantum > BBR3_QUANTUM)
		quantum = BBR3_QUANTUM;
	segments = law_max(segments, law_max(BBR3_QUANTA * law_max((u32)quantum, 2 * law->mss) / law->mss, BBR3_LEAST));
	return law->state == BBR3_UP ? segments + 2 : segments;
}

LAW_INLINE u32 bbr3_target(const struct law *law, const struct window *window)
{
	return law_min(bbr3_bdp(law, bbr3_bw(law), 100), window->cwnd);
}

/* BBRInflightWithHeadroom (4.3.3.6). */
LAW_INLINE u32 bbr3_with_headroom(const struct law *law)
{
	u32 most = law->inflight_longterm;

	if (most == BBR3_INFINITY)
		return most;
	most -= law_min(law_max((u32)((u64)most * BBR3_HEADROOM / 100), 1), most);
	return law_max(most, BBR3_LEAST);
}

LAW_INLINE int bbr3_is_probe_bw(const struct law *law) { return law->state >= BBR3_DOWN && law->state <= BBR3_UP; }

LAW_INLINE void bbr3_enter(struct law *law, u32 state, u32 pacing_gain, u32 window_gain)
{
	law->state = state;
	law->pacing_gain = pacing_gain;
	law->window_gain = window_gain;
}

LAW_INLINE void bbr3_enter_startup(struct law *law) { bbr3_enter(law, BBR3_STARTUP, BBR3_STARTUP_PACING, BBR3_WINDOW); }

LAW_INLINE void bbr3_start_round(struct law *law, struct bbr3_ack *ack)
{
	law->round_end = ack->sample->delivered;
	/* It ends the round before, not this one. */
	law->round_start = 0;
}

LAW_INLINE void bbr3_reset_full_bw(struct law *law, u64 bw)
{
	law->full_bw = bw;
	law->full_count = 0;
	law->full_now = 0;
}

LAW_INLINE void bbr3_reset_lower_bounds(struct law *law)
{
	law->bw_shortterm = BBR3_INFINITE_RATE;
	law->inflight_shortterm = BBR3_INFINITY;
}

LAW_INLINE void bbr3_save_window(struct law *law, const struct window *window)
{
	int is_good = !law->repairing && law->state != BBR3_PROBE_RTT;

	law->prior_cwnd = is_good ? window->cwnd : law_max(law->prior_cwnd, window->cwnd);
}

LAW_INLINE void bbr3_start_down(struct law *law, struct bbr3_ack *ack)
{
	/* Fibonacci hashing; deliveries keep flows apart that share a clock in virtual time. */
	u64 drawn = (ack->sample->now_us ^ (u64)ack->sample->delivered << 32) * 0x9e3779b97f4a7c15ull;

	law->loss_in_round = 0;
	law->loss_events = 0;
	law->bw_latest = 0;
	law->inflight_latest = 0;
	law->up_count = BBR3_INFINITY;
	law->rounds_since_probe = (u32)(drawn >> 63);
	law->wait_us = BBR3_WAIT_US + (u32)((drawn >> 32 & 0x7fffffff) * BBR3_WAIT_RANGE_US >> 31);
	law->cycle_us = ack->sample->now_us;
	law->stopping = 1;
	bbr3_start_round(law, ack);
	bbr3_enter(law, BBR3_DOWN, BBR3_DOWN_PACING, BBR3_WINDOW);
}

LAW_INLINE void bbr3_start_cruise(struct law *law) { bbr3_enter(law, BBR3_CRUISE, 100, BBR3_WINDOW); }

LAW_INLINE void bbr3_start_refill(struct law *law, struct bbr3_ack *ack)
{
	bbr3_reset_lower_bounds(law);
	law->up_rounds = 0;
	law->up_acks = 0;
	law->stopping = 0;
	law->resuming = 0;
	bbr3_start_round(law, ack);
	bbr3_enter(law, BBR3_REFILL, 100, BBR3_WINDOW);
}

/* BBRRaiseInflightLongtermSlope (4.3.3.6). */
LAW_INLINE void bbr3_raise_slope(struct law *law, const struct window *window)
{
	u32 growth = 1u << (law->up_rounds & 31);

	law->up_rounds = law_min(law->up_rounds + 1, BBR3_SLOPE_ROUNDS);
	law->up_count = law_max(window->cwnd / growth, 1);
}

LAW_INLINE void bbr3_start_up(struct law *law, const struct window *window, struct bbr3_ack *ack)
{
	law->probe_samples = 1;
	bbr3_start_round(law, ack);
	bbr3_reset_full_bw(law, ack->rate);
	bbr3_enter(law, BBR3_UP, BBR3_UP_PACING, BBR3_UP_WINDOW);
	bbr3_raise_slope(law, window);
}

/* BBRHandleInflightTooHigh (4.5.10.2). */
LAW_INLINE void bbr3_inflight_too_high(struct law *law, const struct window *window, struct bbr3_ack *ack,
				       u32 in_flight)
{
	law->probe_samples = 0;
	law->was_high = 1;
	if (!law->is_limited)
		law->inflight_longterm = law_max(in_flight, bbr3_target(law, window) * BBR3_BETA / 100);
	if (law->state == BBR3_UP)
		bbr3_start_down(law, ack);
}

/* rs.lost and rs.tx_in_flight (2.3). */
LAW_INLINE void bbr3_count_losses(struct law *law, const struct bbr3_ack *ack)
{
	const struct sample *sample = ack->sample;
	const struct bbr3_mark *mark;
	u32 i, before = 0;

	law->lost += sample->lost;
	law->recent_lost += sample->lost;
	if (!ack->sampled)
		return;
	for (i = 0; i < BBR3_MARKS; i++) {
		mark = &law->marks[(law->newest_mark - i) % BBR3_MARKS];
		before = mark->lost;
		if ((s32)(ack->prior - mark->delivered) >= 0)
			break;
	}
	law->recent_lost = law->lost - before;
	law->tx_in_flight = sample->rate_delivered + law->recent_lost;
	if (sample->delivered - law->marks[law->newest_mark % BBR3_MARKS].delivered >=
	    law_max(law->tx_in_flight / BBR3_MARKS_PER_ROUND, 1)) {
		law->newest_mark++;
		law->marks[law->newest_mark % BBR3_MARKS].delivered = sample->delivered;
		law->marks[law->newest_mark % BBR3_MARKS].lost = law->lost;
	}
}

/* BBRHandleLostPacket and BBRInflightLongtermFromLostPacket (4.5.10.2). */
LAW_INLINE void bbr3_handle_losses(struct law *law, const struct window *window, struct bbr3_ack *ack)
{
	u32 lost = ack->sample->lost, before, in_flight;

	law->loss_is_high = (u64)law->recent_lost * 100 > (u64)law->tx_in_flight * BBR3_LOSS;
	if (!lost)
		return;
	if (!law->loss_in_round)
		law->loss_round_end = ack->sample->delivered;
	law->loss_in_round = 1;
	law->loss_events++;
	if (!law->probe_samples || !law->loss_is_high)
		return;
	before = law->recent_lost - lost;
	in_flight = law->tx_in_flight - law_min(lost, law->tx_in_flight);
	/* Add the lost segments that did not yet exceed the limit. */
	if ((u64)in_flight * BBR3_LOSS > (u64)before * 100)
		in_flight += (u32)(((u64)in_flight * BBR3_LOSS - (u64)before * 100) / (100 - BBR3_LOSS));
	bbr3_inflight_too_high(law, window, ack, in_flight);
}

/* BBRUpdateLatestDeliverySignals (4.5.10.3). */
LAW_INLINE void bbr3_update_latest(struct law *law, struct bbr3_ack *ack)
{
	if (!ack->sampled)
		return;
	if (ack->rate > law->bw_latest)
		law->bw_latest = ack->rate;
	law->inflight_latest = law_max(law->inflight_latest, ack->sample->rate_delivered);
	if ((s32)(ack->prior - law->loss_round_end) >= 0) {
		law->loss_round_end = ack->sample->delivered;
		law->loss_round_start = 1;
	}
}

/* BBRUpdateMaxBw (4.5.5) and BBRUpdateRound (4.5.1). */
LAW_INLINE void bbr3_update_bandwidth(struct law *law, struct bbr3_ack *ack)
{
	if (!ack->sampled)
		return;
	if ((s32)(ack->prior - law->round_end) >= 0) {
		bbr3_start_round(law, ack);
		law->rounds_since_probe++;
		law->round_start = 1;
	}
	if ((ack->rate >= bbr3_max_bw(law) || !law->is_limited) && ack->rate > law->max_bw[1])
		law->max_bw[1] = ack->rate;
}

/* At the end of a loss round: BBRCheckStartupHighLoss (4.3.1.3), BBRAdaptLowerBoundsFromCongestion (4.5.10.3). */
LAW_INLINE void bbr3_adapt_to_losses(struct law *law, const struct window *window, const struct bbr3_ack *ack)
{
	int is_probing = law->state == BBR3_STARTUP || law->state == BBR3_REFILL || law->state == BBR3_UP;
	u64 bw;
	u32 in_flight;

	if (!law->loss_round_start)
		return;
	if (law->loss_in_round && !is_probing) {
		bw = law->bw_shortterm == BBR3_INFINITE_RATE ? bbr3_max_bw(law) : law->bw_shortterm;
		bw = bw * BBR3_BETA / 100;
		in_flight = law->inflight_shortterm == BBR3_INFINITY ? window->cwnd : law->inflight_shortterm;
		in_flight = (u32)((u64)in_flight * BBR3_BETA / 100);
		law->bw_shortterm = law->bw_latest > bw ? law->bw_latest : bw;
		law->inflight_shortterm = law_max(law->inflight_latest, in_flight);
	}
	if (law->state == BBR3_STARTUP && ack->sample->flags & LAW_REPAIR && law->loss_events >= BBR3_LOSS_EVENTS &&
	    law->loss_is_high) {
		law->full_reached = 1;
		law->inflight_longterm = law_max(bbr3_bdp(law, bbr3_bw(law), 100), law->inflight_latest);
	}
	law->loss_in_round = 0;
	law->loss_events = 0;
}

/* BBRUpdateACKAggregation (4.5.9). */
LAW_INLINE void bbr3_update_aggregation(struct law *law, const struct window *window, const struct bbr3_ack *ack)
{
	u64 now = ack->sample->now_us, since = now - law->extra_since_us;
	u32 expected, extra;

	/* So long a time has more deliveries than are counted, and would exceed 64 bits. */
	expected = since > BBR3_MIN_RTT_US ? LAW_LARGEST : law_segments(bbr3_bw(law), (u32)since, law->mss);
	if (law->extra_delivered <= expected) {
		law->extra_delivered = 0;
		law->extra_since_us = now;
		expected = 0;
	}
	law->extra_delivered += ack->sample->acked;
	extra = law_min(law->extra_delivered - expected, window->cwnd);
	if (law->round_start && ++law->extra_rounds >= (law->full_reached ? BBR3_EXTRA_ROUNDS : 1)) {
		law->extra_rounds = 0;
		law->extra_acked[0] = law->extra_acked[1];
		law->extra_acked[1] = 0;
	}
	law->extra_acked[1] = law_max(law->extra_acked[1], extra);
}

/* BBRCheckFullBWReached (4.3.1.2). */
LAW_INLINE void bbr3_check_full(struct law *law, const struct bbr3_ack *ack)
{
	if (law->full_now || !law->round_start || law->is_limited)
		return;
	if (ack->rate >= law->full_bw * BBR3_GROWTH / 100) {
		bbr3_reset_full_bw(law, ack->rate);
		return;
	}
	if (++law->full_count >= BBR3_FULL_ROUNDS) {
		law->full_now = 1;
		law->full_reached = 1;
	}
}

/* BBRAdaptUpperBounds and BBRProbeInflightLongtermUpward (4.3.3.6). */
LAW_INLINE void bbr3_adapt_upper_bounds(struct law *law, const struct window *window, struct bbr3_ack *ack)
{
	u32 grown;

	if (law->stopping && law->round_start) {
		law->stopping = 0;
		law->probe_samples = 0;
		/* A cycle without samples, as after an idle time, keeps the previous maximum. */
		if (bbr3_is_probe_bw(law) && !law->is_limited && law->max_bw[1]) {
			law->max_bw[0] = law->max_bw[1];
			law->max_bw[1] = 0;
		}
		if (law->resuming && !law->was_high && bbr3_is_probe_bw(law))
			bbr3_start_refill(law, ack);
	}
	if (law->loss_is_high) {
		if (law->probe_samples)
			bbr3_inflight_too_high(law, window, ack, law->tx_in_flight);
		return;
	}
	if (law->inflight_longterm == BBR3_INFINITY)
		return;
	law->inflight_longterm = law_max(law->inflight_longterm, law->tx_in_flight);
	if (law->state != BBR3_UP || !(ack->sample->flags & LAW_WINDOW_LIMITED) ||
	    window->cwnd < law->inflight_longterm)
		return;
	law->up_acks += ack->sample->acked;
	if (law->up_acks >= law->up_count) {
		grown = law->up_acks / law_max(law->up_count, 1);
		law->up_acks -= grown * law->up_count;
		law->inflight_longterm = law_min(law->inflight_longterm + grown, LAW_LARGEST);
	}
	if (law->round_start)
		bbr3_raise_slope(law, window);
}

/* BBRUpdateProbeBWCyclePhase (4.3.3.6). */
LAW_INLINE void bbr3_update_cycle(struct law *law, const struct window *window, struct bbr3_ack *ack)
{
	const struct sample *sample = ack->sample;
	u32 rounds, is_at_bound;

	if (!law->full_reached)
		return;
	bbr3_adapt_upper_bounds(law, window, ack);
	if (law->state == BBR3_DOWN || law->state == BBR3_CRUISE) {
		rounds = law_min(bbr3_target(law, window), BBR3_RENO_ROUNDS);
		if (sample->now_us > law->cycle_us + law->wait_us || law->rounds_since_probe >= rounds)
			bbr3_start_refill(law, ack);
		else if (law->state == BBR3_DOWN && sample->in_flight <= bbr3_with_headroom(law) &&
			 sample->in_flight <= bbr3_with_budget(law, window, bbr3_bdp(law, bbr3_max_bw(law), 100)))
			bbr3_start_cruise(law);
	} else if (law->state == BBR3_REFILL) {
		if (law->round_start)
			bbr3_start_up(law, window, ack);
	} else if (law->state == BBR3_UP) {
		is_at_bound = law->was_high && sample->prior_in_flight >= law->inflight_longterm;
		if (!is_at_bound && sample->flags & LAW_WINDOW_LIMITED && window->cwnd >= law->inflight_longterm) {
			bbr3_reset_full_bw(law, ack->rate);
		} else if (is_at_bound || law->full_now) {
			bbr3_start_down(law, ack);
			law->was_high = 0;
			law->resuming = is_at_bound;
		}
	}
}

/* BBRUpdateMinRTT (4.3.4.4). */
LAW_INLINE void bbr3_update_min_rtt(struct law *law, const struct sample *sample)
{
	law->probe_rtt_expired = sample->now_us > law->probe_rtt_min_at_us + BBR3_PROBE_RTT_US;
	if (sample->rtt_us && (sample->rtt_us < law->probe_rtt_min_us || law->probe_rtt_expired)) {
		law->probe_rtt_min_us = sample->rtt_us;
		law->probe_rtt_min_at_us = sample->now_us;
	}
	if (law->probe_rtt_min_us < law->min_rtt_us || sample->now_us > law->min_rtt_at_us + BBR3_MIN_RTT_US) {
		law->min_rtt_us = law->probe_rtt_min_us;
		law->min_rtt_at_us = law->probe_rtt_min_at_us;
	}
}

LAW_INLINE u32 bbr3_probe_rtt_window(const struct law *law)
{
	return law_max(bbr3_bdp(law, bbr3_bw(law), BBR3_PROBE_RTT_WINDOW), BBR3_LEAST);
}

/* BBRCheckProbeRTT (4.3.4.4) and BBRExitProbeRTT (4.3.4.5). */
LAW_INLINE void bbr3_check_probe_rtt(struct law *law, struct window *window, struct bbr3_ack *ack)
{
	const struct sample *sample = ack->sample;

	if (law->state != BBR3_PROBE_RTT) {
		if (!law->probe_rtt_expired || (law->idle && law->is_limited))
			return;
		bbr3_save_window(law, window);
		bbr3_enter(law, BBR3_PROBE_RTT, 100, BBR3_PROBE_RTT_WINDOW);
		law->probe_rtt_done_us = 0;
		law->stopping = 1;
		bbr3_start_round(law, ack);
	}
	/* What is sent now is limited by this state: its samples are no bandwidths of the path. */
	law->limited = 1;
	law->limited_until = sample->delivered + sample->in_flight;
	if (!law->probe_rtt_done_us) {
		if (sample->in_flight > bbr3_probe_rtt_window(law))
			return;
		law->probe_rtt_done_us = sample->now_us + BBR3_PROBE_RTT_LASTS_US;
		law->probe_rtt_round_done = 0;
		bbr3_start_round(law, ack);
		return;
	}
	if (law->round_start)
		law->probe_rtt_round_done = 1;
	if (!law->probe_rtt_round_done || sample->now_us <= law->probe_rtt_done_us)
		return;
	law->probe_rtt_min_at_us = sample->now_us;
	window->cwnd = law_max(window->cwnd, law->prior_cwnd);
	bbr3_reset_lower_bounds(law);
	if (law->full_reached) {
		bbr3_start_down(law, ack);
		bbr3_start_cruise(law);
	} else {
		bbr3_enter_startup(law);
	}
}

/* BBRSetPacingRate (4.6.2). */
LAW_INLINE void bbr3_set_pacing_rate(const struct law *law, struct window *window)
{
	u64 rate = bbr3_bw(law) * law->pacing_gain / 100 * BBR3_MARGIN / 100;

	if (rate > window->pacing_rate || (law->full_reached && rate))
		window->pacing_rate = rate;
}

/* BBRSetCwnd (4.6.4.6) and BBRBoundCwndForModel (4.6.4.7). */
LAW_INLINE void bbr3_set_window(struct law *law, struct window *window, const struct sample *sample)
{
	u32 most, cap = BBR3_INFINITY, cwnd = window->cwnd;

	most = bbr3_bdp(law, bbr3_bw(law), law->window_gain) + law_max(law->extra_acked[0], law->extra_acked[1]);
	most = bbr3_with_budget(law, window, most);
	if (law->full_reached)
		cwnd = law_min(cwnd + sample->acked, most);
	else if (cwnd < most || sample->delivered < law->initial)
		cwnd += sample->acked;
	cwnd = law_max(cwnd, BBR3_LEAST);
	if (law->state == BBR3_PROBE_RTT)
		cwnd = law_min(cwnd, bbr3_probe_rtt_window(law));
	if (law->state == BBR3_PROBE_RTT || law->state == BBR3_CRUISE)
		cap = bbr3_with_headroom(law);
	else if (bbr3_is_probe_bw(law))
		cap = law->inflight_longterm;
	cap = law_max(law_min(cap, law->inflight_shortterm), BBR3_LEAST);
	window->cwnd = law_min(law_min(cwnd, cap), LAW_LARGEST);
}

LAW_INLINE void law_init(struct law *law, struct window *window)
{
	law->initial = window->cwnd;
	law->mss = BBR3_FIRST_MSS;
	law->min_rtt_us = BBR3_INFINITY;
	law->probe_rtt_min_us = BBR3_INFINITY;
	law->inflight_longterm = BBR3_INFINITY;
	bbr3_reset_lower_bounds(law);
	bbr3_enter_startup(law);
	window->ssthresh = BBR3_SSTHRESH;
	window->pacing_rate = (u64)law->initial * law->mss * BBR3_STARTUP_PACING * (1000000 / BBR3_FIRST_RTT_US) / 100;
}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	struct bbr3_ack ack = {
		.sample = sample,
		.rate = law_rate(sample),
		.sampled = sample->rate_interval_us != 0,
		.prior = sample->delivered - sample->rate_delivered,
	};

	law->round_start = 0;
	law->loss_round_start = 0;
	law->mss = law_max(sample->mss, 1);
	law->delivered = sample->delivered;
	if (!law->started && sample->srtt_us) {
		law->started = 1;
		law->min_rtt_at_us = sample->now_us;
		law->probe_rtt_min_at_us = sample->now_us;
		law->extra_since_us = sample->now_us;
		window->pacing_rate = (u64)law->initial * law->mss * BBR3_STARTUP_PACING * 10000 / sample->srtt_us;
	}
	if (law->limited && ack.sampled && (s32)(ack.prior - law->limited_until) > 0)
		law->limited = 0;
	law->is_limited = law->limited || sample->flags & LAW_APP_LIMITED;
	bbr3_count_losses(law, &ack);
	bbr3_handle_losses(law, window, &ack);
	bbr3_update_latest(law, &ack);
	bbr3_update_bandwidth(law, &ack);
	bbr3_adapt_to_losses(law, window, &ack);
	bbr3_update_aggregation(law, window, &ack);
	bbr3_check_full(law, &ack);
	if (law->state == BBR3_STARTUP && law->full_reached)
		bbr3_enter(law, BBR3_DRAIN, BBR3_DRAIN_PACING, BBR3_WINDOW);
	if (law->state == BBR3_DRAIN &&
	    sample->in_flight <= bbr3_with_budget(law, window, bbr3_bdp(law, bbr3_bw(law), 100)))
		bbr3_start_down(law, &ack);
	bbr3_update_cycle(law, window, &ack);
	if (law->started) {
		bbr3_update_min_rtt(law, sample);
		bbr3_check_probe_rtt(law, window, &ack);
	}
	if (sample->acked)
		law->idle = !sample->in_flight;
	if (law->loss_round_start) {
		law->bw_latest = ack.rate;
		law->inflight_latest = sample->rate_delivered;
	}
	if (law->repairing && !(sample->flags & LAW_REPAIR)) {
		law->repairing = 0;
		window->cwnd = law_max(window->cwnd, law->prior_cwnd);
	}
	bbr3_set_pacing_rate(law, window);
	bbr3_set_window(law, window, sample);
	/* TCP may have raised it when it found a repair spurious. */
	window->ssthresh = BBR3_SSTHRESH;
}

/* 4.6.4.4. */
LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	bbr3_save_window(law, window);
	law->repairing = 1;
	if (event != LAW_TIMEOUT)
		return;
	window->cwnd = 1;
	law->lost++;
	if (!law->loss_in_round)
		law->loss_round_end = law->delivered;
	law->loss_in_round = 1;
}
