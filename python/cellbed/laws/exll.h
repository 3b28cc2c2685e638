/* exll: ExLL
 *
 * Park et al., "ExLL: An Extremely Low-latency Congestion Control for Mobile Cellular Networks", CoNEXT 2018, in the
 * form that needs only the sender: the authors' Linux module tcp_exll of July 2020, among the tools of Lim et al., IEEE
 * TMC 2024. Once per round, FAST's equation moves the window W towards the capacity at a round trip that is as short as
 * a cellular link has it:
 *
 *   W = (1 - gamma) W + gamma (W min(1, C / RTT) + alpha (1 - min(1, T / M)))
 *
 * C: smallest round trip, calibrated. RTT: mean of the round. M, T: largest and mean delivery rate. Losses: ignored.
 *
 * Deviations from the publication, as in the module:
 *  - the receiver's inference from the downlink's subframes and the uplink's scheduling is replaced by the delivery
 *    rate at the sender and a constant; alpha is 200 and the constant 5 ms, for the receiver 100 and 10 ms;
 *  - the rate is sampled at each acknowledgement over about a round trip, not from the first to the last
 *    acknowledgement of a window; T is its mean with weight 1/8 per acknowledgement, and M when start-up ends;
 *  - start-up does not end when the window over the smallest round trip exceeds M, but when M has stopped growing: a
 *    window of about ten times what fills the link has been sent by then, and is lost where the queue is shorter.
 * Deviations from the module:
 *  - RTT is the mean of the round, not its last one;
 *  - alpha T has 64 bits. The module's 32 overflow above 10 Mbit/s, and W is too large;
 *  - samples that the application limited only count in T if they exceed M, and W does not grow while it does not limit
 *    the sender: it would grow without bound;
 *  - W is at least 2 segments; a timeout sets the window to 1 segment until the next acknowledgement, as Linux does;
 *  - it does not pace.
 *
 * Compared: the module, 20 Mbit/s, 1, 2, 4 flows: throughput 0.99; queue 7.2, 50, 124 ms for 6.8, 43, 123 (in 64 bits)
 */
#define LAW_OWNS_WINDOW
#include "law.h"

/* Interval of the uplink's scheduling, which the smallest round trip misses: the module. */
#define CALIBRATION_US 5000u
/* Segments that a round adds to W at gamma 1 while nothing is delivered: the module. */
#define ALPHA 200u
/* 1 / gamma: the publication and the module. */
#define GAMMA_DIVISOR 2u
/* Rounds of the largest delivery rate, a power of 2: the module. */
#define ROUNDS 8u
/* Start-up ends after so many rounds with the rate growing by less than a quarter: the module. */
#define LEVEL_ROUNDS 2u
/* 1 / weight of a sample in the mean rate: the module. */
#define MEAN_DIVISOR 8u
/* Windows and rates have fractions of 1/256 segment: at small windows, whole segments never reach the equilibrium. */
#define ONE 256u
#define SMALLEST (2u * ONE)

struct law {
	u64 rtt_sum_us;		/* of the round */
	u32 rtts;
	u32 smallest_us;	/* 0: none yet */
	u32 round_end;
	u32 round;
	u32 rates[ROUNDS];	/* largest of each round, 1/256 segment per second; 0: none */
	u32 mean_rate;		/* the same unit */
	u32 level_rate;		/* largest rate when it last grew by a quarter */
	u32 level_rounds;
	u32 is_started;
	u64 w;			/* 1/256 segment */
};
#define LAW_SHOWN(show) show(smallest_us) show(mean_rate) show(w)

LAW_INLINE u32 largest_rate(const struct law *law)
{
	u32 largest = 0;

	for (u32 i = 0; i < ROUNDS; i++)
		largest = law_max(largest, law->rates[i]);
	return largest;
}

LAW_INLINE void measure(struct law *law, const struct sample *sample)
{
	u64 rate;
	u32 *round = &law->rates[law->round % ROUNDS];

	if (sample->rtt_us) {
		law->rtt_sum_us += sample->rtt_us;
		law->rtts++;
		law->smallest_us = law->smallest_us ? law_min(law->smallest_us, sample->rtt_us) : sample->rtt_us;
	}
	if (!sample->rate_interval_us)
		return;
	rate = (u64)sample->rate_delivered * ONE * 1000000u / sample->rate_interval_us;
	if (rate > 0xffffffffu)
		rate = 0xffffffffu;
	if (sample->flags & LAW_APP_LIMITED && rate <= largest_rate(law))
		return;
	*round = law_max(*round, rate);
	law->mean_rate = law->mean_rate ? ((u64)law->mean_rate * (MEAN_DIVISOR - 1) + rate) / MEAN_DIVISOR : rate;
}

LAW_INLINE void start_up(struct law *law, u32 rate, u64 calibrated_us)
{
	if (rate >= (u64)law->level_rate + law->level_rate / 4) {
		law->level_rate = rate;
		law->level_rounds = 0;
	} else if (++law->level_rounds >= LEVEL_ROUNDS) {
		law->is_started = 1;
		law->mean_rate = rate;
		law->w = calibrated_us < 0xffffffffu ? rate * calibrated_us / 1000000u : (u64)LAW_LARGEST * ONE;
	}
}

LAW_INLINE void adjust(struct law *law, u32 rate, u64 calibrated_us, u64 rtt_us, u32 flags)
{
	u64 w = law->w;
	u64 target = calibrated_us < rtt_us ? w * calibrated_us / rtt_us : w;

	if (law->mean_rate < rate)
		target += (u64)ALPHA * ONE * (rate - law->mean_rate) / rate;
	w = ((GAMMA_DIVISOR - 1) * w + target) / GAMMA_DIVISOR;
	if (w < law->w || flags & LAW_WINDOW_LIMITED)
		law->w = w;
}

LAW_INLINE void end_round(struct law *law, const struct sample *sample)
{
	u64 calibrated_us = (u64)law->smallest_us + CALIBRATION_US;
	u32 rate = largest_rate(law);

	if (law->rtts && rate) {
		if (law->is_started)
			adjust(law, rate, calibrated_us, law->rtt_sum_us / law->rtts, sample->flags);
		else if (!(sample->flags & LAW_APP_LIMITED))
			start_up(law, rate, calibrated_us);
	}
	if (law->w < SMALLEST)
		law->w = SMALLEST;
	if (law->w > (u64)LAW_LARGEST * ONE)
		law->w = (u64)LAW_LARGEST * ONE;
	law->rtt_sum_us = law->rtts = 0;
	/* A round without a sample does not age the others. */
	if (law->rates[law->round % ROUNDS])
		law->rates[++law->round % ROUNDS] = 0;
}

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	measure(law, sample);
	if (law_is_round(&law->round_end, sample))
		end_round(law, sample);
	if (law->is_started)
		window->cwnd = law->w / ONE;
	else if (sample->flags & LAW_WINDOW_LIMITED)
		window->cwnd = law_min(window->cwnd + law_min(sample->acked, LAW_LARGEST), LAW_LARGEST);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_TIMEOUT)
		window->cwnd = 1;
}
