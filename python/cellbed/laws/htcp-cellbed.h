/* htcp-cellbed: H-TCP, to be compared with the kernel's own
 *
 * Leith and Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004, and
 * draft-leith-tcp-htcp-06, 2008. The longer the time since the last losses, the faster the window grows. Losses reduce
 * the window to the content of the path without its queue, unless the throughput has changed since the losses before.
 *
 * Constants from the publication: delta_L, the growth function, the bounds of beta, and the change that resets it. From
 * Linux (net/ipv4/tcp_htcp.c), by the same group: the reference round trip and the bounds of the scale, the average of
 * the throughput, and the fading of the longest round trip.
 *
 * Deviations from the publication, as in Linux:
 *  - the throughput before losses is the highest average of the epoch, over round trips;
 *  - the time since the last losses begins at the end of their repair.
 * Deviations from Linux, which
 *  - scales the growth of the first second, too, and in whole numbers;
 *  - adapts the backoff only from the third losses on, and above a round trip of 10 ms;
 *  - measures time in ticks of the kernel, 1 to 10 ms, and adds at most 20 ms to the longest round trip at a time;
 *  - returns to the state before losses that were none.
 *
 * Compared: tcp_htcp.c, 20 Mbit/s, 1, 2, 4 flows: throughput 1.00; queue 98, 100, 104 ms for 98, 117, 123
 */
#include "law.h"

/* The threshold of high-speed growth, us. */
#define DELTA_L_US 1000000u
/* Ends the growth of alpha: 1000 s. */
#define LONGEST_MS 1000000u
/* Round trip at which alpha is not scaled, and where the scale ends at 1/10 and 2, us. */
#define REFERENCE_US 100000u
#define SHORTEST_US (REFERENCE_US / 10)
#define LONGEST_US (REFERENCE_US * 2)
/* Backoff factor, 1/256: its bounds 0.5 and 0.8. */
#define BETA_MIN 128u
#define BETA_MAX 204u
/* Per cent: change of the throughput that resets beta, and remainder of the longest queueing delay after losses. */
#define CHANGE 20u
#define REMAINS 95u

struct law {
	u64 epoch_us;		/* end of the last repair; 0: under repair, or no acknowledgement yet */
	u64 round_us;
	u64 acked;		/* segments in the round trip */
	u64 throughput;		/* average, segments per second; 0: none in this epoch */
	u64 highest;		/* of the epoch */
	u64 before;		/* of the epoch before */
	u32 round_end;
	u32 min_us;		/* shortest round trip; 0: none */
	u32 max_us;
	u32 count;
	u32 alpha;		/* 1 / LAW_SEGMENT segments per round trip */
	u32 beta;		/* 1/256 */
};
#define LAW_SHOWN(show) show(alpha) show(beta)

LAW_INLINE void measure(struct law *law, const struct sample *sample)
{
	if (sample->rtt_us) {
		law->min_us = law->min_us ? law_min(law->min_us, sample->rtt_us) : sample->rtt_us;
		law->max_us = law_max(law->max_us, sample->rtt_us);
	}
	law->acked += sample->acked;
	if (!law_is_round(&law->round_end, sample))
		return;
	if (sample->now_us > law->round_us) {
		u64 now = law->acked * 1000000 / (sample->now_us - law->round_us);

		law->throughput = law->throughput ? (3 * law->throughput + now) / 4 : now;
		law->highest = law->throughput > law->highest ? law->throughput : law->highest;
	}
	law->round_us = sample->now_us;
	law->acked = 0;
}

/* 1 + 10 (delta - delta_L) + ((delta - delta_L) / 2)^2, scaled by the round trip, with backoff beta. */
LAW_INLINE u32 increase(const struct law *law, u64 delta_us)
{
	u64 ms, factor = LAW_SEGMENT;

	if (delta_us > DELTA_L_US) {
		ms = (delta_us - DELTA_L_US) / 1000;
		ms = ms < LONGEST_MS ? ms : LONGEST_MS;
		factor += LAW_SEGMENT * ms / 100 + LAW_SEGMENT / 4 * ms * ms / 1000000;
		factor = factor * law_max(law_min(law->min_us, LONGEST_US), SHORTEST_US) / REFERENCE_US;
		factor = factor < LAW_SEGMENT ? LAW_SEGMENT : factor;
	}
	return 2 * (256 - law->beta) * factor / 256;
}

LAW_INLINE u32 backoff(const struct law *law)
{
	u64 change = law->highest > law->before ? law->highest - law->before : law->before - law->highest;

	if (!law->before || !law->max_us || change * 100 > law->before * CHANGE)
		return BETA_MIN;
	return law_max(law_min((u64)law->min_us * 256 / law->max_us, BETA_MAX), BETA_MIN);
}

LAW_INLINE void law_init(struct law *law, struct window *window)
{
	law->beta = BETA_MIN;
}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	if (!law->epoch_us) {
		law->epoch_us = law->round_us = sample->now_us;
		law->round_end = sample->delivered + sample->in_flight;
		law->acked = law->throughput = law->highest = 0;
	}
	measure(law, sample);
	law->alpha = increase(law, sample->now_us - law->epoch_us);
	law_increase(&law->count, window, sample, law->alpha);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event != LAW_LOSS)
		return;
	law->beta = backoff(law);
	law->before = law->highest;
	law->max_us = law->min_us + (u64)(law->max_us - law->min_us) * REMAINS / 100;
	law->epoch_us = 0;
	window->ssthresh = law_max((u64)window->cwnd * law->beta / 256, 2);
}
