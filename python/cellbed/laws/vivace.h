/* vivace: PCC Vivace (latency)
 *
 * M. Dong et al., "PCC Vivace: Online-Learning Congestion Control", NSDI 2018, with the constants that WebRTC's
 * implementation of it has as well. A monitor interval at x Mbit/s has the utility
 *
 *   u = x^0.9 - 900 x max(0, dRTT/dT) - 11.35 x L
 *
 * with the slope dRTT/dT of its round trips (a linear regression over the times of sending) and its share L of lost
 * segments. The rate doubles until u falls, then returns to the last rate without a fall. From then on, two pairs of
 * intervals at 1.05 and 0.95 of the rate are tried in random order. If both pairs agree, the rate changes by the
 * gradient of u, times an amplifier that grows with each step in the same direction, and by at most 5 % of itself;
 * this bound grows by 10 % with each step that it cuts.
 *
 * Acknowledgements and losses of an interval arrive a round trip after it. All segments sent are numbered: delivered
 * + lost + in flight at the beginning and at the end of an interval are its first number and the one after its last;
 * delivered + lost is the number that an acknowledgement has reached. Losses and round trips belong to the interval
 * of this number. Numbers restart with a timeout; later losses are not counted one by one.
 *
 * Deviations:
 * - The next doubling, and the next step, wait for the results of the intervals before (one round trip, at the
 *   current rate).
 * - The amplifier is ((k+1)/2)^1.2 for the k-th step in the same direction, k at most 16 (in WebRTC k up to 3, then
 *   2k - 3).
 * - The bound grows to 95 % at most.
 * - An interval lasts one smoothed round trip, but at least 10 segments.
 * - An interval with less than 3/4 of the rate sent (application, receive window) is repeated.
 * - Slopes below 0.01 count as 0; the check of abnormal latencies by further intervals is left out.
 * - The window is 2 smoothed round trips of the rate, at least 10 segments: it limits the sender when a link fails.
 * - A timeout halves the rate and doubles it again as at the start.
 * - Rates are whole kbit/s below 2^26. x^0.9 is interpolated between 16 points per octave (error below 0.01 %).
 *
 * Compared: PCC-Uspace, 20 Mbit/s, 1, 2, 4 flows: throughput 1.00, 0.99, 0.99; queue 1.3, 6.1, 114 ms for 0.9, 4.1, 145
 */
#define LAW_OWNS_WINDOW
#include "law.h"

#define VIVACE_LATENCY 900u		/* b of the utility */
#define VIVACE_LOSS_PERCENT 1135u	/* c = 11.35 */
#define VIVACE_PROBE 20u		/* probes differ by 1/20 of the rate: epsilon = 0.05 */
#define VIVACE_BOUND_PERCENT 5u		/* first bound of a step */
#define VIVACE_BOUND_GROWTH_PERCENT 10u	/* of the bound */
#define VIVACE_BOUND_GROWTHS 9u		/* 95 %: the rate stays above 0 */
#define VIVACE_STEP_KBITS 1000u		/* a gradient of 1 is a step of 1 Mbit/s: theta = 1 */
#define VIVACE_LEAST_SLOPE 10486u	/* 0.01, in 1/2^20 */
#define VIVACE_LARGEST_SLOPE (4u << 20)
#define VIVACE_PROBES 4u
#define VIVACE_SEGMENTS 10u		/* least of an interval, and least window */
#define VIVACE_LARGEST_KBITS ((1u << 26) - 1)
#define VIVACE_FIRST_RATE 1000000u	/* bytes per second for each segment of the window until a round trip is known */
#define VIVACE_AMPLIFIER_STEPS 16u

/* 2^16 (1 + i/16)^0.9 */
static const u32 vivace_mantissa[17] = {
	65536, 69211, 72865, 76498, 80112, 83708, 87288, 90850, 94398,
	97930, 101449, 104954, 108446, 111926, 115393, 118850, 122295,
};

/* 2^8 1000 (2^i / 1000)^0.9 */
static const u64 vivace_octave[32] = {
	511, 953, 1779, 3319, 6194, 11558, 21568, 40247, 75103, 140147, 261523, 488019, 910676, 1699382, 3171158, 5917590,
	11042614, 20606247, 38452616, 71755119, 133899787, 249865838, 466266141, 870083385, 1623633007, 3029806324,
	5653818517, 10550398408,
};

/* 2^8 ((k+1)/2)^1.2, k from 1 */
static const u32 vivace_amplifier[VIVACE_AMPLIFIER_STEPS] = {
	256, 416, 588, 769, 957, 1151, 1351, 1556, 1766, 1980, 2198, 2420, 2645, 2873, 3104, 3338,
};

enum { VIVACE_STARTING, VIVACE_PROBING };

struct vivace_interval {
	u64 start_us;
	/* Sums of the regression: t in units of 1/512 of the planned duration, y in us above the first round trip. */
	u64 sum_tt;
	s64 sum_ty, sum_y;
	u32 sum_t;
	u32 samples;
	u32 unit_us;
	u32 duration_us;	/* planned */
	u32 first_rtt_us;
	u32 first, end;		/* numbers of its segments */
	u32 lost;
	u32 kbits;		/* rate, kbit/s */
};

struct law {
	struct vivace_interval intervals[VIVACE_PROBES];
	s64 utility[VIVACE_PROBES];
	s64 last_utility;	/* of the interval before, while starting */
	u32 has_last;
	u32 phase;
	u32 kbits;		/* the current rate, kbit/s; 0: not known yet */
	u32 opened, closed, done;	/* intervals of this decision that began, ended, and have all their results */
	u32 is_limited;		/* an interval was not filled */
	u32 is_up;		/* bit i: interval i probes above the current rate */
	u32 lost;		/* all lost segments */
	u32 random;
	u32 is_growing;		/* direction of the last step */
	u32 same_direction;	/* steps in this direction */
	u32 growths;		/* of the bound */
};
#define LAW_SHOWN(show) show(kbits) show(phase)

/* 2^8 1000 u for a rate without latency and losses. */
LAW_INLINE u64 vivace_power(u32 kbits)
{
	u32 octave = 0, rest = kbits, mantissa, low, high, i;

	for (i = 16; i; i >>= 1) {
		if (rest >> i) {
			rest >>= i;
			octave += i;
		}
	}
	mantissa = (((u64)kbits << 16) >> octave) & 0xffff;
	low = vivace_mantissa[mantissa >> 12];
	high = vivace_mantissa[(mantissa >> 12) + 1];
	return vivace_octave[octave & 31] * (low + ((high - low) * (mantissa & 0xfff) >> 12)) >> 16;
}

/*
 * dRTT/dT in 1/2^20; 0 if it is not positive. |y| < 2^19, t < 2^10 and at most 2^16 samples keep the products within
 * 64 bits.
 */
LAW_INLINE u32 vivace_slope(const struct vivace_interval *interval)
{
	u64 n = interval->samples, spread = n * interval->sum_tt - (u64)interval->sum_t * interval->sum_t, rise;
	s64 product = (s64)n * interval->sum_ty - (s64)interval->sum_t * interval->sum_y;

	if (product <= 0 || !spread)
		return 0;
	rise = product;
	if (rise >> 42) {
		rise >>= 20;
		spread = (spread >> 20) ? spread >> 20 : 1;
	}
	rise = (rise << 20) / spread / (interval->unit_us ? interval->unit_us : 1);
	if (rise < VIVACE_LEAST_SLOPE)
		return 0;
	return rise < VIVACE_LARGEST_SLOPE ? (u32)rise : VIVACE_LARGEST_SLOPE;
}

/* 2^8 1000 u */
LAW_INLINE s64 vivace_utility(const struct vivace_interval *interval)
{
	u32 segments = law_max(interval->end - interval->first, 1);
	u64 share = ((u64)law_min(interval->lost, segments) << 20) / segments;
	u64 latency = (u64)VIVACE_LATENCY * interval->kbits * vivace_slope(interval) >> 12;
	u64 loss = ((u64)VIVACE_LOSS_PERCENT * interval->kbits * share >> 12) / 100;

	return (s64)vivace_power(interval->kbits) - (s64)latency - (s64)loss;
}

LAW_INLINE void vivace_add(struct vivace_interval *interval, const struct sample *sample)
{
	u64 sent_us = sample->now_us - sample->rtt_us, t;
	s64 y;

	if (!sample->rtt_us || interval->samples >= 0xffff)
		return;
	if (!interval->samples)
		interval->first_rtt_us = sample->rtt_us;
	t = sent_us > interval->start_us ? (sent_us - interval->start_us) / (interval->unit_us ? interval->unit_us : 1) : 0;
	t = t < 1023 ? t : 1023;
	y = (s64)sample->rtt_us - interval->first_rtt_us;
	y = y > 0x7ffff ? 0x7ffff : y < -0x7ffff ? -0x7ffff : y;
	interval->samples++;
	interval->sum_t += t;
	interval->sum_tt += t * t;
	interval->sum_y += y;
	interval->sum_ty += (s64)t * y;
}

LAW_INLINE u32 vivace_planned(const struct law *law)
{
	return law->phase == VIVACE_PROBING ? VIVACE_PROBES : 1;
}

LAW_INLINE void vivace_open(struct law *law, const struct sample *sample, u32 srtt_us, u32 sent)
{
	u32 place = law->opened++ % VIVACE_PROBES, kbits = law->kbits, probe = kbits / VIVACE_PROBE;
	u64 least_us = (u64)VIVACE_SEGMENTS * sample->mss * 8000u / law_max(kbits, 1);
	struct vivace_interval fresh = { .start_us = sample->now_us, .first = sent };

	if (law->phase == VIVACE_PROBING)
		kbits = (law->is_up >> place) & 1 ? kbits + probe : kbits - probe;
	fresh.kbits = kbits;
	fresh.duration_us = law_max(srtt_us, (u32)least_us);
	fresh.unit_us = law_max(fresh.duration_us >> 9, 1);
	law->intervals[place] = fresh;
}

LAW_INLINE void vivace_close(struct law *law, const struct sample *sample, u32 sent)
{
	struct vivace_interval *interval = &law->intervals[law->closed++ % VIVACE_PROBES];
	u64 span_us = sample->now_us - interval->start_us;

	interval->end = sent;
	/* Bits against kbit/s times us, both in 1/1000 bit: less than 3/4. */
	if ((u64)(sent - interval->first) * sample->mss * 8000u * 4 < span_us * interval->kbits * 3)
		law->is_limited = 1;
}

/* The step of the rate for the sum of both pairs' differences of utility. */
LAW_INLINE void vivace_step(struct law *law, s64 difference)
{
	u32 is_growing = difference > 0, kbits = law->kbits, i;
	u64 size = is_growing ? (u64)difference : (u64)-difference;
	u64 bound;

	if (is_growing != law->is_growing) {
		law->same_direction = 0;
		law->growths = 0;
	}
	law->is_growing = is_growing;
	law->same_direction = law_min(law->same_direction + 1, VIVACE_AMPLIFIER_STEPS);
	/* Two pairs, each 2 probes apart. */
	size = (size * VIVACE_STEP_KBITS / (4 * law_max(kbits / VIVACE_PROBE, 1))) >> 8;
	size = size < 0xffffffffu ? size : 0xffffffffu;
	size = size * vivace_amplifier[(law->same_direction - 1) % VIVACE_AMPLIFIER_STEPS] >> 8;
	bound = (u64)kbits * (VIVACE_BOUND_PERCENT + VIVACE_BOUND_GROWTH_PERCENT * law->growths) / 100;
	if (size > bound) {
		size = bound;
		law->growths = law_min(law->growths + 1, VIVACE_BOUND_GROWTHS);
	} else {
		/* The least bound that allows the step. */
		for (i = 0; i < VIVACE_BOUND_GROWTHS && law->growths; i++) {
			bound = (u64)kbits * (VIVACE_BOUND_PERCENT + VIVACE_BOUND_GROWTH_PERCENT * (law->growths - 1)) / 100;
			if (size > bound)
				break;
			law->growths--;
		}
	}
	law->kbits = is_growing ? kbits + (u32)size : kbits - (u32)size;
}

LAW_INLINE void vivace_decide(struct law *law)
{
	s64 first = law->utility[0] - law->utility[1], second = law->utility[2] - law->utility[3];

	if (law->is_limited)
		return;
	if (law->phase == VIVACE_STARTING) {
		if (law->has_last && law->utility[0] < law->last_utility) {
			law->phase = VIVACE_PROBING;
			law->kbits /= 2;
		} else {
			law->has_last = 1;
			law->last_utility = law->utility[0];
			law->kbits = law_min(law->kbits * 2, VIVACE_LARGEST_KBITS);
		}
		return;
	}
	if (!(law->is_up & 1))
		first = -first;
	if (!(law->is_up & 4))
		second = -second;
	if ((first > 0 && second > 0) || (first < 0 && second < 0))
		vivace_step(law, first + second);
}

/* Interval 1 of each pair is the opposite of interval 0. */
LAW_INLINE void vivace_plan(struct law *law, u64 now_us)
{
	law->opened = law->closed = law->done = 0;
	law->is_limited = 0;
	law->random = (law->random ^ (u32)now_us) * 1664525u + 1013904223u;
	law->is_up = (law->random >> 31 ? 1 : 2) | ((law->random >> 30) & 1 ? 4 : 8);
}

LAW_INLINE void law_init(struct law *law, struct window *window)
{
	window->pacing_rate = (u64)window->cwnd * VIVACE_FIRST_RATE;
}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	u32 srtt_us = sample->srtt_us ? sample->srtt_us : sample->rtt_us, reached, sent, i, pace;
	struct vivace_interval *interval;
	u64 least;

	if (!srtt_us || !sample->mss)
		return;
	law->lost += sample->lost;
	reached = sample->delivered + law->lost;
	sent = reached + sample->in_flight;
	if (!law->kbits)
		law->kbits = (u32)((u64)window->cwnd * sample->mss * 8000u / srtt_us);

	interval = &law->intervals[law->done % VIVACE_PROBES];
	if (law->done < law->opened && (s32)(reached - interval->first) > 0) {
		interval->lost += sample->lost;
		vivace_add(interval, sample);
	}
	if (law->closed < law->opened) {
		interval = &law->intervals[law->closed % VIVACE_PROBES];
		if (sample->now_us - interval->start_us >= interval->duration_us)
			vivace_close(law, sample, sent);
	}
	for (i = 0; i < VIVACE_PROBES && law->done < law->closed; i++) {
		interval = &law->intervals[law->done % VIVACE_PROBES];
		if ((s32)(reached - interval->end) < 0)
			break;
		law->utility[law->done++ % VIVACE_PROBES] = vivace_utility(interval);
	}
	if (law->done && law->done == vivace_planned(law)) {
		vivace_decide(law);
		vivace_plan(law, sample->now_us);
	}
	/* 2 segments per round trip keep acknowledgements coming. */
	least = 2ull * sample->mss * 8000u / srtt_us;
	law->kbits = law_min(law_max(law->kbits, least < VIVACE_LARGEST_KBITS ? (u32)least : 0), VIVACE_LARGEST_KBITS);
	if (law->closed == law->opened && law->opened < vivace_planned(law))
		vivace_open(law, sample, srtt_us, sent);

	pace = law->kbits;
	if (law->opened > law->closed)
		pace = law->intervals[law->closed % VIVACE_PROBES].kbits;
	window->pacing_rate = (u64)pace * 125u;
	window->cwnd = law_max(2 * law_segments(window->pacing_rate, srtt_us, sample->mss), VIVACE_SEGMENTS);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event != LAW_TIMEOUT || !law->kbits)
		return;
	law->kbits = law_max(law->kbits / 2, 1);
	law->phase = VIVACE_STARTING;
	law->has_last = 0;
	law->same_direction = law->growths = 0;
	law->opened = law->closed = law->done = 0;
	law->is_limited = 0;
	window->cwnd = law_max(window->cwnd / 2, VIVACE_SEGMENTS);
	window->pacing_rate = (u64)law->kbits * 125u;
}
