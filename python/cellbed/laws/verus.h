/* verus: Verus
 *
 * Y. Zaki et al., "Adaptive Congestion Control for Unpredictable Cellular Networks", SIGCOMM 2015, with the constants
 * of the authors' program (github.com/yzaki/verus, 2017). The delay profile has the mean delay of segments by the
 * window W at which they were sent. Each epoch of 5 ms moves the delay aimed at,
 *
 *   Dest -= 2 ms if Dmax > 6 Dmin, else -= 1 ms if Dmax rose, else += 2 ms; Dest >= Dmin
 *
 * where Dmax is the largest delay of an epoch (smoothed: 0.2 old + 0.8 new; without acknowledgements at least the time
 * since the last one, as in the program), and sends
 *
 *   W = largest window of a delay up to Dest in the profile
 *   S = max(0, W + (2 - n) / (n - 1) I), n = round trip / 5 ms rounded up, I: segments in flight (the paper: last W)
 *
 * segments. Slow start ends with a loss or a delay above 15 Dmin. A loss sets W to 0.7 of the window at which the lost
 * segment was sent; for a round trip, W then grows by 1/W per acknowledgement and the profile is frozen.
 *
 * The window of TCP is what is in flight and the rest of S; it grows once per epoch, by S, which leaves in a burst.
 *
 * Deviations:
 * - There is no clock: an epoch ends at the first acknowledgement after it. One without acknowledgements moves Dest,
 *   if it is among the next 32, but sends nothing.
 * - The profile has 8 bins per octave of W in place of one per window, and its curve, drawn each second as published, a
 *   line between each two in place of a smoothing spline. The curve never falls. It begins with Dmin at W = 0.
 * - Above its last window it continues with the slope of its last octave, up to twice that window. If it is flat there,
 *   slow start begins again, at W; in the authors' program, at 1 and without the profile.
 * - Delays are round trips of TCP, losses those that TCP finds (the program: segments missing for 150 ms) or a mark of
 *   congestion. A timeout sets W to 1, as does the program's Dest = Dmin.
 * - Recovery ends after a round trip (the paper: with a segment that was sent at a window of at most W).
 * - Slow start begins at TCP's initial window. In the program it ends at 500 ms, not 15 Dmin.
 * - W grows only while the window limits the sender. At least two segments keep acknowledgements coming.
 * - As in the program, not the paper: if Dest is Dmin and Dmax > 6 Dmin, nothing is sent, or, with hardly anything in
 *   flight, Dmin grows by 10 ms.
 *
 * Compared: the program, 20 Mbit/s, 1, 2, 4 flows: throughput 1.09, 1.00, 1.01; queue 124, 126, 135 ms for 91, 104, 130
 */
#define LAW_OWNS_WINDOW
#include "law.h"

#define VERUS_EPOCH_US 5000u
#define VERUS_DOWN_US 1000u	/* delta 1 */
#define VERUS_UP_US 2000u	/* delta 2, and the step down beyond R */
#define VERUS_RATIO 6u		/* R, the largest Dmax / Dmin: the program; the paper has 2, 4 and 6 */
#define VERUS_START_RATIO 15u	/* N, Dmax / Dmin that ends slow start: the paper */
#define VERUS_MEAN 8u		/* 1 / weight of a delay in the profile */
#define VERUS_CURVE_US 1000000u	/* interval between two curves */
#define VERUS_MISTAKEN_US 10000u	/* step of Dmin if not even an idle path has it: the program */
#define VERUS_LEAST 2u		/* least window of TCP, segments */
#define VERUS_LATE 32u		/* most epochs that end at an acknowledgement */
#define VERUS_EPOCHS 512u	/* with a known W, a power of 2: 2.56 s */
#define VERUS_BINS 128u		/* a power of 2 */
#define VERUS_LARGEST ((15u << 14) - 1)	/* largest W, of the last bin but one */
#define VERUS_LARGEST_US (1u << 30)

enum { VERUS_START, VERUS_STEADY, VERUS_RECOVERY };

struct law {
	u64 epoch_us;			/* begin of the epoch; 0: none yet */
	u64 curve_us;			/* time of the next curve */
	u64 acked_us;			/* time of the last delay */
	u32 epoch;			/* its number */
	u32 phase;
	u32 w;
	u32 sent_w;			/* W when the segment was sent that was acknowledged last */
	u32 count;			/* segments acknowledged while recovering that have not grown W yet */
	u32 round;			/* end of the recovery */
	u32 is_lost, is_timeout;	/* events since the last acknowledgement */
	u32 is_held;			/* nothing is sent in this epoch */
	u32 min_us;			/* Dmin; 0: none yet */
	u32 epoch_max_us;		/* largest delay in this epoch; 0: none */
	u32 max_us;			/* Dmax */
	u32 aim_us;			/* Dest */
	u32 found;			/* bin of Dest */
	u32 last;			/* last bin of the curve with a delay */
	u32 history[VERUS_EPOCHS];	/* W by epoch; 0: none */
	u32 profile[VERUS_BINS];	/* mean delay by bin, us; 0: none */
	u32 curve[VERUS_BINS];		/* delay at the middle of each bin, us */
	unsigned char next[VERUS_BINS];	/* next bin with a delay; 0: none */
};
#define LAW_SHOWN(show) show(w) show(aim_us) show(max_us) show(phase)

/* Bins of one segment up to 16, then 8 per octave. */
LAW_INLINE u32 verus_bin(u32 w)
{
	u32 shift = 0, rest = law_min(w, VERUS_LARGEST) >> 4, i;

	for (i = 8; i; i >>= 1) {
		if (rest >> i) {
			rest >>= i;
			shift += i;
		}
	}
	shift += rest ? 1 : 0;
	return 8 * shift + (law_min(w, VERUS_LARGEST) >> shift);
}

/* The middle of a bin. */
LAW_INLINE u32 verus_middle(u32 bin)
{
	u32 shift = bin < 16 ? 0 : bin / 8 - 1;

	return ((bin - 8 * shift) << shift) + ((1u << shift) >> 1);
}

LAW_INLINE void verus_learn(struct law *law, u32 w, u32 rtt_us)
{
	u32 *mean = &law->profile[verus_bin(w) % VERUS_BINS];

	*mean = *mean ? ((u64)*mean * (VERUS_MEAN - 1) + rtt_us) / VERUS_MEAN : rtt_us;
}

/* Draw the curve of the profile: rising, and linear over bins without a delay. */
LAW_INLINE void verus_draw(struct law *law, u64 now_us)
{
	u32 next = 0, delay_us = law->min_us, target_us, bin;

	for (bin = VERUS_BINS - 1; bin; bin--) {
		if (law->profile[bin])
			next = bin;
		law->next[bin] = next;
	}
	law->last = 0;
	law->curve[0] = delay_us;
	for (bin = 1; bin < VERUS_BINS; bin++) {
		next = law->next[bin] % VERUS_BINS;
		if (next >= bin) {
			target_us = law_max(law->profile[next], delay_us);
			delay_us += (target_us - delay_us) / (next - bin + 1);
			law->last = next;
		}
		law->curve[bin] = delay_us;
	}
	law->curve_us = now_us + VERUS_CURVE_US;
}

LAW_INLINE u32 verus_at(const struct law *law, u32 bin)
{
	/* The mask is for the verifier: the compiler must not know that it changes nothing. */
	asm volatile("" : "+r"(bin));
	return law->curve[bin % VERUS_BINS];
}

/* The delay of a window. */
LAW_INLINE u32 verus_delay(const struct law *law, u32 w)
{
	u32 bin = verus_bin(w), low, low_us;

	if (bin && w < verus_middle(bin))
		bin--;
	low = verus_middle(bin);
	low_us = verus_at(law, bin);
	return low_us + (u64)(verus_at(law, bin + 1) - low_us) * (w - low) / (verus_middle(bin + 1) - low);
}

/* The largest window of a delay of at most Dest; VERUS_LARGEST if the profile has no bound. */
LAW_INLINE u32 verus_window(struct law *law)
{
	u32 aim_us = law->aim_us, bin = 0, end, low, low_us, rise_us, step;
	u64 w;

	for (step = VERUS_BINS / 2; step; step >>= 1)
		if (law->curve[(bin + step) % VERUS_BINS] <= aim_us)
			bin += step;
	/* Else the verifier would follow each bin to the end. */
	law->found = bin;
	asm volatile("" ::: "memory");
	bin = law->found;
	end = bin + 1;
	if (bin >= law->last) {
		/* Continue the last octave. */
		end = law->last;
		bin = end > 8 ? end - 8 : 0;
	}
	low = verus_middle(bin);
	low_us = verus_at(law, bin);
	rise_us = verus_at(law, end) - low_us;
	if (!rise_us || aim_us < low_us)
		return rise_us ? 1 : VERUS_LARGEST;
	w = low + (u64)(aim_us - low_us) * (verus_middle(end) - low) / rise_us;
	return w < VERUS_LARGEST ? law_max(w, 1) : VERUS_LARGEST;
}

/* An epoch ends. */
LAW_INLINE void verus_aim(struct law *law, u32 cwnd, int is_limited)
{
	u64 silence_us = law->epoch_us - law->acked_us;
	u32 max_us = law->epoch_max_us, aim_us = law->aim_us;

	if (!max_us)
		max_us = law_max(law->max_us, silence_us < VERUS_LARGEST_US ? (u32)silence_us : VERUS_LARGEST_US);
	if (!law->max_us)
		law->max_us = max_us;
	law->is_held = 0;
	if (law->phase == VERUS_STEADY) {
		if (law->max_us > (u64)VERUS_RATIO * law->min_us)
			aim_us = law_max(aim_us - law_min(aim_us, VERUS_UP_US), law->min_us);
		else if (max_us > law->max_us)
			aim_us = law_max(aim_us - law_min(aim_us, VERUS_DOWN_US), law->min_us);
		else if (is_limited)
			aim_us = law_min(aim_us + VERUS_UP_US, VERUS_LARGEST_US);
		if (aim_us == law->min_us && law->max_us > (u64)VERUS_RATIO * law->min_us) {
			if (cwnd <= VERUS_LEAST)
				law->min_us = law_min(law->min_us + VERUS_MISTAKEN_US, VERUS_LARGEST_US);
			else
				law->is_held = 1;
		}
		law->aim_us = aim_us;
	}
	/* Rounded to the nearest: else it stays below a constant delay. */
	law->max_us = ((u64)law->max_us + 4ull * max_us + 2) / 5;
	law->epoch_max_us = 0;
}

/* A segment was acknowledged. */
LAW_INLINE void verus_measure(struct law *law, const struct sample *sample)
{
	u32 rtt_us = law_min(sample->rtt_us, VERUS_LARGEST_US), past_us = sample->now_us - law->epoch_us, epochs, w;

	if (!rtt_us)
		return;
	law->acked_us = sample->now_us;
	law->min_us = law->min_us ? law_min(law->min_us, rtt_us) : rtt_us;
	law->epoch_max_us = law_max(law->epoch_max_us, rtt_us);
	epochs = rtt_us > past_us ? (rtt_us - past_us + VERUS_EPOCH_US - 1) / VERUS_EPOCH_US : 0;
	w = epochs < VERUS_EPOCHS ? law->history[(law->epoch - epochs) % VERUS_EPOCHS] : 0;
	if (!w)
		return;
	law->sent_w = w;
	if (law->phase != VERUS_RECOVERY)
		verus_learn(law, w, rtt_us);
}

LAW_INLINE void verus_recover(struct law *law, const struct sample *sample)
{
	law->phase = VERUS_RECOVERY;
	law->w = law->is_timeout ? 1 : law_max(law_min(law->w, 7 * law->sent_w / 10), 1);
	law->count = 0;
	law->round = sample->delivered + sample->in_flight;
}

/* A segment was acknowledged while recovering. */
LAW_INLINE void verus_grow(struct law *law, const struct sample *sample)
{
	law->count += law_min(sample->acked, VERUS_LARGEST);
	if (law->count >= law->w) {
		law->count = 0;
		law->w = law_min(law->w + 1, VERUS_LARGEST);
	}
	if (law_is_round(&law->round, sample)) {
		law->phase = VERUS_STEADY;
		law->aim_us = verus_delay(law, law->w);
	}
}

LAW_INLINE void law_init(struct law *law, struct window *window)
{
	law->w = law->sent_w = law_min(window->cwnd, VERUS_LARGEST);
}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	u32 cwnd = window->cwnd, in_flight = law_min(sample->in_flight, LAW_LARGEST), epoch = law->epoch, epochs, w, i;
	int is_limited = !!(sample->flags & LAW_WINDOW_LIMITED);
	u64 late, kept;

	if (!law->epoch_us)
		law->epoch_us = sample->now_us;
	for (i = 0; i < VERUS_LATE && sample->now_us - law->epoch_us >= VERUS_EPOCH_US; i++) {
		law->epoch_us += VERUS_EPOCH_US;
		verus_aim(law, cwnd, is_limited);
		law->history[++law->epoch % VERUS_EPOCHS] = law->w;
	}
	late = (sample->now_us - law->epoch_us) / VERUS_EPOCH_US;
	law->epoch_us += late * VERUS_EPOCH_US;
	law->epoch += (u32)late;

	verus_measure(law, sample);
	if (law->phase == VERUS_RECOVERY)
		verus_grow(law, sample);
	/* A second loss in a round trip is the same one. */
	if (law->is_timeout || ((sample->lost || law->is_lost) && law->phase != VERUS_RECOVERY) ||
	    (law->phase == VERUS_START && sample->rtt_us > (u64)VERUS_START_RATIO * law->min_us))
		verus_recover(law, sample);
	law->is_lost = law->is_timeout = 0;
	if (law->phase != VERUS_START && sample->now_us >= law->curve_us)
		verus_draw(law, sample->now_us);
	if (law->phase == VERUS_STEADY && law->epoch != epoch) {
		w = verus_window(law);
		if (w == VERUS_LARGEST)
			law->phase = VERUS_START;
		else
			law->w = law_min(w, law_max(2 * verus_middle(law->last % VERUS_BINS), 1));
	}

	if (law->phase == VERUS_START) {
		if (is_limited)
			law->w = law_min(law->w + law_min(sample->acked, VERUS_LARGEST), VERUS_LARGEST);
		law->curve_us = 0;
		cwnd = law->w;
	} else {
		/* What is in flight, and what was not sent yet. */
		cwnd = in_flight + (cwnd > sample->prior_in_flight ? cwnd - sample->prior_in_flight : 0);
		epochs = (sample->srtt_us + VERUS_EPOCH_US - 1ull) / VERUS_EPOCH_US;
		kept = epochs > 1 ? (u64)cwnd * (epochs - 2) / (epochs - 1) : cwnd;
		if (law->epoch != epoch && !law->is_held && law->w > kept)
			cwnd += law->w - (u32)kept;
	}
	law->history[law->epoch % VERUS_EPOCHS] = law->w;
	window->cwnd = law_max(law_min(cwnd, LAW_LARGEST), VERUS_LEAST);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_LOSS)
		law->is_lost = 1;
	else
		law->is_timeout = 1;
}
