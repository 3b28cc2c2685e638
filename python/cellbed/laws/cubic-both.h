/* cubic-both: CUBIC with HyStart by train and delay
 *
 * RFC 9438, and HyStart (Ha & Rhee, "Taming the elephants", Computer Networks 55, 2011, section 4), as Linux has them
 * (net/ipv4/tcp_cubic.c). It is here to be compared with the kernel's own and varied: cubic-off, cubic-train and
 * cubic-delay differ in HyStart only.
 *
 * Deviations from RFC 9438, all Linux's: beta is 717/1024. A segment acknowledged grows the window by half a segment
 * at most (section 4.2), by a hundredth of 1/cwnd at least, and by a twentieth at least until the first loss. The
 * window is compared with the cubic the shortest, not the smoothed, round trip ahead. The window of a Reno flow keeps
 * its slope when it passes the last reduction (section 4.3). Only idle time does not count (section 4.2), other time
 * limited by the application does. A timeout forgets W_max (section 4.8).
 *
 * Deviations from HyStart, all Linux's: round trips are compared with the connection's shortest, not the previous
 * round's; none counts in the first second after a reduction; acknowledgements may be late by the time of 256 KiB, at
 * most by 1 ms.
 *
 * Deviations from Linux: C is 0.4, not 410/1024; a Reno flow's slope is not rounded to 8/15; the cubic is computed at
 * each acknowledgement; round trips during repairs are not seen; a socket that `fq` paces has the train's threshold of
 * others.
 *
 * Compared: the kernel's own CUBIC, 20 Mbit/s: throughput 1.00, round trip 1.01
 */
#include "law.h"

#ifndef CUBIC_HYSTART_TRAIN
#define CUBIC_HYSTART_TRAIN 1
#endif
#ifndef CUBIC_HYSTART_DELAY
#define CUBIC_HYSTART_DELAY 1
#endif

/* RFC 9438, section 4.6: 0.7; 1024ths. */
#define CUBIC_BETA 717u
/* RFC 9438, section 4.1: C is 0.4 segments per cubic second; here as a fraction. */
#define CUBIC_C 2u
#define CUBIC_C_PER 5u
/* Acknowledged segments per segment of growth: RFC 9438, section 4.2. */
#define CUBIC_FASTEST 2u
/* The same, Linux: at most before the first loss; where the cubic does not grow, times the window. */
#define CUBIC_BEFORE_LOSS 20u
#define CUBIC_SLOWEST 100u
/* The cubic's argument, 1/1024 s: with more, the window is above LAW_LARGEST anyway. */
#define CUBIC_LONGEST (1u << 20)
/* Linux: the queue of before a reduction may still stand. */
#define CUBIC_YOUNG_US 1000000u
/* Linux's parameters of HyStart: segments, us, us, us, round trips. */
#define HYSTART_LOW_WINDOW 16u
#define HYSTART_SPACING_US 2000u
#define HYSTART_LEAST_DELAY_US 4000u
#define HYSTART_MOST_DELAY_US 16000u
#define HYSTART_SAMPLES 8u
/* Linux: a sender, paced at two windows per round trip, may be ahead by four of the largest bursts, or 1 ms. */
#define HYSTART_AHEAD_BYTES (4u * 65536)
#define HYSTART_AHEAD_US 1000u

struct cubic {
	u64 epoch_us;		/* growth after the last reduction began */
	u64 last_us;		/* last acknowledgement */
	u32 is_growing;		/* the epoch has begun */
	u32 is_idle;		/* nothing was in flight after the last acknowledgement */
	u32 largest;		/* W_max, with fast convergence; 0: no loss yet */
	u32 plateau;		/* where the cubic is level */
	u32 level;		/* K: when it is level, 1/1024 s after the epoch */
	u32 reno;		/* W_est: window of a Reno flow */
	u32 reno_count;		/* acknowledged segments that have not grown it yet */
	u32 count;		/* the same of the window */
	u32 min_rtt_us;
	u32 is_found;		/* HyStart has ended slow start */
	u32 round_end;
	u32 round_samples;
	u32 round_rtt_us;	/* the round's shortest round trip */
	u64 round_us;		/* the round's beginning */
	u64 train_us;		/* last acknowledgement of the train */
};

/* Cube root of a number below 2^57, rounded down. Without branches: the verifier would follow each of 2^19 paths. */
LAW_INLINE u32 cubic_root(u64 cube)
{
	u64 root = 0;

	for (int bit = 18; bit >= 0; bit--) {
		u64 larger = root | 1u << bit;

		root = larger - ((cube - larger * larger * larger) >> 63 << bit);
	}
	return root;
}

/* W_cubic(t) = C (t - K)^3 + W_max (RFC 9438, section 4.2). t: 1/1024 s. */
LAW_INLINE u32 cubic_window(const struct cubic *cubic, u64 t)
{
	u64 distance = t < cubic->level ? cubic->level - t : t - cubic->level;
	u64 segments;

	distance = distance < CUBIC_LONGEST ? distance : CUBIC_LONGEST;
	segments = distance * distance * distance * CUBIC_C / CUBIC_C_PER >> 30;
	if (t >= cubic->level)
		return cubic->plateau + segments;
	return segments < cubic->plateau ? cubic->plateau - segments : 0;
}

/* Returns how many acknowledged segments grow the window by one. */
LAW_INLINE u32 cubic_spacing(struct cubic *cubic, u32 cwnd, u32 acked, u64 now_us)
{
	u32 target, spacing, per_reno;

	if (!cubic->is_growing) {
		cubic->is_growing = 1;
		cubic->epoch_us = now_us;
		cubic->plateau = law_max(cubic->largest, cwnd);
		cubic->level = cubic_root(((u64)(cubic->plateau - cwnd) << 30) * CUBIC_C_PER / CUBIC_C);
		cubic->reno = cwnd;
		cubic->reno_count = 0;
	}
	target = cubic_window(cubic, (now_us - cubic->epoch_us + cubic->min_rtt_us) * 1024 / 1000000);
	spacing = target > cwnd ? cwnd / (target - cwnd) : CUBIC_SLOWEST * cwnd;
	if (!cubic->largest)
		spacing = law_min(spacing, CUBIC_BEFORE_LOSS);

	/* As fast as Reno: 3 (1 - beta) / (1 + beta) segments per round trip (RFC 9438, section 4.3). */
	per_reno = law_max((u64)cwnd * (1024 + CUBIC_BETA) / (3 * (1024 - CUBIC_BETA)), 1);
	cubic->reno_count += acked;
	cubic->reno += cubic->reno_count / per_reno;
	cubic->reno_count %= per_reno;
	if (cubic->reno > cwnd)
		spacing = law_min(spacing, cwnd / (cubic->reno - cwnd));
	return law_max(spacing, CUBIC_FASTEST);
}

/* Whether acknowledgements come for half a round trip without a gap, or round trips show a queue. */
LAW_INLINE int cubic_is_start_over(struct cubic *cubic, u32 cwnd, const struct sample *sample)
{
	u32 margin = law_min(law_max(cubic->min_rtt_us / 8, HYSTART_LEAST_DELAY_US), HYSTART_MOST_DELAY_US);

	if (law_is_round(&cubic->round_end, sample)) {
		cubic->round_us = cubic->train_us = sample->now_us;
		cubic->round_samples = 0;
		cubic->round_rtt_us = ~0u;
	}
	if (cwnd < HYSTART_LOW_WINDOW)
		return 0;
	if (CUBIC_HYSTART_TRAIN && sample->now_us - cubic->train_us <= HYSTART_SPACING_US) {
		u64 window = 2 * (u64)cwnd * law_max(sample->mss, 1);
		u32 ahead = law_min((u64)HYSTART_AHEAD_BYTES * sample->srtt_us / window, HYSTART_AHEAD_US);

		cubic->train_us = sample->now_us;
		if (sample->now_us - cubic->round_us > (cubic->min_rtt_us + ahead) / 2)
			return 1;
	}
	if (CUBIC_HYSTART_DELAY) {
		cubic->round_rtt_us = law_min(cubic->round_rtt_us, sample->rtt_us);
		if (cubic->round_samples >= HYSTART_SAMPLES)
			return cubic->round_rtt_us > cubic->min_rtt_us + margin;
		cubic->round_samples++;
	}
	return 0;
}

LAW_INLINE void cubic_measure(struct cubic *cubic, struct window *window, const struct sample *sample)
{
	if (!sample->rtt_us || (cubic->is_growing && sample->now_us - cubic->epoch_us < CUBIC_YOUNG_US))
		return;
	if (!cubic->min_rtt_us || sample->rtt_us < cubic->min_rtt_us)
		cubic->min_rtt_us = sample->rtt_us;
	if ((CUBIC_HYSTART_TRAIN || CUBIC_HYSTART_DELAY) && !cubic->is_found && window->cwnd < window->ssthresh &&
	    cubic_is_start_over(cubic, window->cwnd, sample)) {
		cubic->is_found = 1;
		window->ssthresh = window->cwnd;
	}
}

LAW_INLINE void cubic_ack(struct cubic *cubic, struct window *window, const struct sample *sample)
{
	u32 acked = sample->acked;
	u32 spacing;

	/* A pause does not count (RFC 9438, section 4.2): the window would jump behind it. */
	if (cubic->is_idle)
		cubic->epoch_us += sample->now_us - cubic->last_us;
	cubic->last_us = sample->now_us;
	cubic->is_idle = !sample->in_flight;

	cubic_measure(cubic, window, sample);
	if (!(sample->flags & LAW_WINDOW_LIMITED))
		return;
	if (window->cwnd < window->ssthresh) {
		u32 grown = law_min(window->cwnd + acked, window->ssthresh);

		acked -= grown - window->cwnd;
		window->cwnd = law_min(grown, LAW_LARGEST);
		if (!acked)
			return;
	}
	spacing = cubic_spacing(cubic, law_max(window->cwnd, 1), acked, sample->now_us);
	/* Segments counted at a slower growth are one segment at most. */
	if (cubic->count >= spacing) {
		cubic->count = 0;
		window->cwnd++;
	}
	cubic->count += acked;
	window->cwnd = law_min(window->cwnd + cubic->count / spacing, LAW_LARGEST);
	cubic->count %= spacing;
}

LAW_INLINE void cubic_event(struct cubic *cubic, struct window *window, enum event event)
{
	u64 cwnd = window->cwnd;

	if (event == LAW_TIMEOUT) {
		struct cubic begun = { .round_end = cubic->round_end };

		*cubic = begun;
		return;
	}
	/* Fast convergence (RFC 9438, section 4.7). */
	cubic->largest = cwnd < cubic->largest ? cwnd * (1024 + CUBIC_BETA) / 2048 : cwnd;
	cubic->is_growing = 0;
	cubic->count = 0;
	window->ssthresh = law_max(cwnd * CUBIC_BETA / 1024, 2);
}

#ifndef CUBIC_ONLY_FUNCTIONS
struct law {
	struct cubic cubic;
};

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	cubic_ack(&law->cubic, window, sample);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	cubic_event(&law->cubic, window, event);
}
#endif
