/* sprout: Sprout
 *
 * K. Winstein, A. Sivaraman, H. Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular
 * Networks", NSDI 2013, section 3, in a form that needs only the sender. The rate of the link is one of 256 between 0
 * and 1000 packets per second, with packets of 1500 bytes 12 Mbit/s; sprout-scaled has no such limit. The rate moves as
 * Brownian motion by 200 packets/s per square root of a second, and leaves 0, an outage, once per second. In each tick
 * of 20 ms, the probabilities of the rates spread by this motion and are multiplied by the Poisson probabilities of the
 * number of packets that arrived. The window is the number of packets that the link delivers within 100 ms with a
 * probability of 95 %: packets hardly wait longer.
 *
 * Deviations from the publication:
 * - The sender counts the segments that acknowledgements report; there, the receiver counts arrivals, and sends its
 *   forecasts back. What delays acknowledgements thus counts as the link's. Losses are ignored, as there.
 * - Segments have no marks of the time to the next one. Instead, ticks without arrivals count from the third one on
 *   (the program: after 50 ms), where the round trip grew: else no segment had left. A round trip above the shortest
 *   shows for how long a segment waited. Where none waited for a part of a tick, its count is a lower bound: the rates
 *   above it are as likely as its own.
 * - The window stands until the next acknowledgement, where the publication's follows the forecast for 3 more ticks. It
 *   is at least 2 segments, instead of a packet every 50 ms, and TCP's own until the end of the first tick.
 * - Acknowledgements end ticks. Of a longer silence, only the last 8 ticks are taken. The forecast is from after the
 *   last tick with an arrival or a segment that waited. After a second without a waiting segment, all rates are equally
 *   probable again.
 * - The motion comes from four moving averages: 199 instead of 200 packets/s, and at most 90 packets/s per tick. The
 *   forecast is zero up to 40 ms later after the link stops.
 * - Forecasts have a normal distribution for each rate, with the variance of the authors' program
 *   (github.com/keithw/sprout), where ticks are independent. For random rates with jumps, 99 % of forecasts are within
 *   1 packet of that program's. There, the window has the second to sixth tick of the forecast, which is a tenth more,
 *   and an outage gets less probable while nothing is observed.
 * - A timeout sets the window to 1 segment until the next acknowledgement.
 *
 * Compared: the program, 20 Mbit/s, 1, 2, 4 flows: throughput 1.21, 0.99; queue 8.7, 54, 114 ms for 8.9, 42, 96
 */
#define LAW_OWNS_WINDOW
#include "law.h"

#define SPROUT_RATES 256u
#define SPROUT_TICK_US 20000u
#define SPROUT_MOST_TICKS 8u		/* of one acknowledgement */
#define SPROUT_MOST_PACKETS 64u		/* of a tick */
#define SPROUT_IGNORED_TICKS 2u		/* after one with arrivals */
#define SPROUT_FORGET_US 1000000u
#define SPROUT_LEAST_WINDOW 2u
/* Widths of the moving averages: their variances, (w^2 - 1) / 12, have the motion's of a tick as sum, 52.4 rates^2. */
#define SPROUT_WIDTH 13u
#define SPROUT_LAST_WIDTH 11u
#define SPROUT_REACH 23u		/* of all four, to each side */
#define SPROUT_CELLS (SPROUT_RATES + 2 * SPROUT_REACH)
#define SPROUT_ESCAPE 1298u		/* 2^16 (1 - exp(-1/s 20 ms)) */
#define SPROUT_ONE (1ull << 48)		/* all probabilities */
#define SPROUT_RISK (SPROUT_ONE / 20)
#ifndef SPROUT_LARGEST_UNIT
#define SPROUT_LARGEST_UNIT 0u
#endif

/* 2^12 log2(2i + 1) */
static const unsigned short sprout_log[SPROUT_RATES] = {
	0, 6492, 9511, 11499, 12984, 14170, 15157, 16003, 16742, 17400, 17991, 18529, 19021, 19476, 19898, 20292,
	20662, 21010, 21338, 21649, 21945, 22226, 22495, 22752, 22998, 23234, 23462, 23680, 23892, 24095, 24292,
	24483, 24668, 24847, 25021, 25189, 25354, 25513, 25669, 25820, 25968, 26112, 26253, 26390, 26525, 26656,
	26784, 26910, 27033, 27154, 27272, 27388, 27502, 27613, 27722, 27830, 27935, 28039, 28141, 28241, 28340,
	28437, 28532, 28626, 28718, 28809, 28898, 28987, 29074, 29159, 29244, 29327, 29409, 29490, 29570, 29649,
	29726, 29803, 29879, 29954, 30027, 30100, 30172, 30244, 30314, 30384, 30452, 30520, 30587, 30654, 30719,
	30784, 30849, 30912, 30975, 31037, 31099, 31160, 31220, 31280, 31339, 31397, 31455, 31513, 31569, 31626,
	31681, 31737, 31791, 31846, 31899, 31952, 32005, 32058, 32109, 32161, 32212, 32262, 32312, 32362, 32411,
	32460, 32508, 32557, 32604, 32651, 32698, 32745, 32791, 32837, 32882, 32927, 32972, 33017, 33061, 33104,
	33148, 33191, 33234, 33276, 33319, 33361, 33402, 33443, 33484, 33525, 33566, 33606, 33646, 33686, 33725,
	33764, 33803, 33842, 33880, 33918, 33956, 33994, 34031, 34068, 34105, 34142, 34178, 34214, 34251, 34286,
	34322, 34357, 34392, 34427, 34462, 34497, 34531, 34565, 34599, 34633, 34667, 34700, 34733, 34766, 34799,
	34832, 34864, 34896, 34929, 34960, 34992, 35024, 35055, 35087, 35118, 35149, 35179, 35210, 35240, 35271,
	35301, 35331, 35361, 35390, 35420, 35449, 35479, 35508, 35537, 35566, 35594, 35623, 35651, 35679, 35708,
	35736, 35763, 35791, 35819, 35846, 35874, 35901, 35928, 35955, 35982, 36009, 36035, 36062, 36088, 36114,
	36141, 36167, 36192, 36218, 36244, 36270, 36295, 36320, 36346, 36371, 36396, 36421, 36446, 36470, 36495,
	36519, 36544, 36568, 36592, 36617, 36641, 36664, 36688, 36712, 36736, 36759, 36783, 36806, 36829, 36852,
};

/* 2^16 2^(-i/16) */
static const u32 sprout_power[17] = {
	65536, 62757, 60097, 57549, 55109, 52773, 50535, 48393, 46341, 44376, 42495, 40693, 38968, 37316, 35734,
	34219, 32768,
};

/* 2^16 of the normal distribution at (i - 32) / 8 */
static const unsigned short sprout_normal[64] = {
	2, 3, 6, 9, 15, 24, 38, 58, 88, 132, 195, 284, 407, 575, 801, 1101, 1491, 1992, 2625, 3413, 4378, 5542, 6924,
	8539, 10398, 12503, 14852, 17432, 20220, 23189, 26299, 29508, 32768, 36028, 39237, 42347, 45316, 48104, 50684,
	53033, 55138, 56997, 58612, 59994, 61158, 62123, 62911, 63544, 64045, 64435, 64735, 64961, 65129, 65252,
	65341, 65404, 65448, 65478, 65498, 65512, 65521, 65527, 65530, 65533,
};

/*
 * 2^12 / s of the rates 4i to 4i + 3, where s^2 is the variance of the packets of 5 ticks: their mean, and 3.2 for the
 * motion (200^2 (20 ms)^3 (0 + 1 + 2 + 3 + 4)).
 */
static const unsigned short sprout_scale[64] = {
	2053, 1740, 1537, 1391, 1281, 1193, 1121, 1060, 1009, 964, 925, 890, 859, 831, 806, 782, 761, 741, 723, 706,
	690, 675, 661, 648, 636, 624, 613, 603, 593, 583, 574, 566, 557, 550, 542, 535, 528, 521, 515, 508, 502, 497,
	491, 486, 480, 475, 470, 466, 461, 456, 452, 448, 444, 440, 436, 432, 428, 425, 421, 418, 414, 411, 408, 405,
};

struct law {
	u64 mass[SPROUT_CELLS];	/* probabilities of the rates; the cells behind them are scratch */
	u64 tick_us;		/* the current tick began */
	u64 last_us;		/* segments were acknowledged last */
	u64 sent_us;		/* those segments left */
	u64 waiting_us;		/* since then, segments waited without a gap */
	u64 pause_us;		/* until then, no segments came since none had left */
	u32 shortest_us;	/* round trip; 0: none yet */
	u32 count;		/* segments of this tick */
	u32 silent;		/* ticks since the last one with segments */
	u32 unit;		/* packets of the model have 2^unit segments */
	u32 rate;		/* mean of the rates, segments per second */
	u32 forecast;		/* segments; 0: none yet */
};
#define LAW_SHOWN(show) show(rate) show(forecast)

/*
 * Returns the nearest number from 0 to a largest one below 2^62. Without `asm`, compilers make branches of this, all of
 * which the verifier would follow.
 */
LAW_INLINE u64 sprout_within(s64 value, s64 largest)
{
	s64 is_negative = value >> 63, is_less;

	asm("" : "+r"(is_negative));
	value &= ~is_negative;
	is_less = (value - largest) >> 63;
	asm("" : "+r"(is_less));
	return largest + ((value - largest) & is_less);
}

/* All rates are equally probable. */
LAW_INLINE void sprout_forget(struct law *law)
{
	for (u32 i = 0; i < SPROUT_RATES; i++)
		law->mass[i] = SPROUT_ONE / SPROUT_RATES;
}

/* The motion of a tick; the sum of the cells grows. What leaves the range stays at its ends. */
LAW_INLINE void sprout_move(struct law *law)
{
	u64 first = 0, second = 0, third = 0, fourth = 0, low = 0, high = 0, stay;
	u64 *mass = law->mass;

	stay = mass[0] - (mass[0] * SPROUT_ESCAPE >> 16);
	mass[0] -= stay;
	/* Sums four times, modulo 2^64, and differences four times are four moving averages, 23 cells late. */
	for (u32 i = 0; i < SPROUT_CELLS; i++) {
		first += i < SPROUT_RATES ? mass[i] : 0;
		second += first;
		third += second;
		fourth += third;
		mass[i] = fourth;
	}
	for (u32 average = 0; average < 3; average++) {
		for (u32 i = SPROUT_CELLS - 1; i >= SPROUT_WIDTH; i--)
			mass[i] -= mass[i - SPROUT_WIDTH];
	}
	/* The last differences, moved to their places; the sum of the first ones telescopes. */
	for (u32 i = SPROUT_REACH - SPROUT_LAST_WIDTH; i < SPROUT_REACH; i++)
		low += mass[i];
	for (u32 i = SPROUT_REACH; i < SPROUT_RATES + SPROUT_REACH; i++)
		mass[i - SPROUT_REACH] = mass[i] - mass[i - SPROUT_LAST_WIDTH];
	for (u32 i = SPROUT_RATES + SPROUT_REACH; i < SPROUT_CELLS; i++)
		high += mass[i] - mass[i - SPROUT_LAST_WIDTH];
	mass[0] += low + stay * SPROUT_WIDTH * SPROUT_WIDTH * SPROUT_WIDTH * SPROUT_LAST_WIDTH;
	mass[SPROUT_RATES - 1] += high;
}

/* 2^12 log2 of the likelihood of a rate, and a constant. count: 1/256 packets. */
LAW_INLINE s64 sprout_likelihood(u32 count, u32 rate)
{
	/* count log2(x) - x log2(e) with x = (2i + 1) 1000/s 20 ms / 512. */
	return (s64)((u64)count * sprout_log[rate & 255] >> 8) - ((2 * rate + 1) * 3693 >> 4);
}

/* Multiplies by the likelihood of a count, 1/256 packets, or with is_bound, of at least this count. */
LAW_INLINE void sprout_observe(struct law *law, u32 count, u32 is_bound)
{
	/* A rate is 20/256 packets per tick. */
	u32 best = sprout_within(count / 20, SPROUT_RATES - 1), last = best | ((is_bound - 1) & (SPROUT_RATES - 1));
	s64 largest = sprout_likelihood(count, best);
	u64 sum = 0, mean = 0, scale;
	u32 excess;

	law->mass[0] *= 1 - sprout_within(count, 1);
	for (u32 i = 0; i < SPROUT_RATES; i++) {
		s64 below = largest - sprout_likelihood(count, sprout_within(i, last));
		u32 loss = sprout_within(below, (44 << 12) - 1), part = loss >> 8 & 15, power;

		power = sprout_power[part] - ((sprout_power[part] - sprout_power[part + 1]) * (loss & 255) >> 8);
		law->mass[i] = (law->mass[i] >> 15) * power >> (loss >> 12);
		sum += law->mass[i];
	}
	/* What an unlikely count leaves keeps all its digits. */
	excess = sum >> 48 ? 16 : 0;
	scale = (1ull << 63) / (sum >> excess | 1);
	for (u32 i = 0; i < SPROUT_RATES; i++) {
		law->mass[i] = (law->mass[i] >> excess) * scale >> 15;
		mean += (law->mass[i] >> 16) * i;
	}
	/* A rate is 1000/s / 256; all probabilities are 2^32 here. */
	law->rate = (mean >> 16) * 1000 >> 24 << law->unit;
}

/* Keeps the mean rate within the second and third quarter of the range by the size of packets. */
LAW_INLINE void sprout_rescale(struct law *law)
{
	u32 rate = law->rate >> law->unit;

	if (!SPROUT_LARGEST_UNIT)
		return;
	if (rate > 750 && law->unit != SPROUT_LARGEST_UNIT) {
		law->unit++;
		for (u32 i = 0; i < SPROUT_RATES; i++)
			law->mass[i] = i < SPROUT_RATES / 2 ? law->mass[2 * i] + law->mass[2 * i + 1] : 0;
	} else if (rate < 250 && law->unit && law->count) {
		law->unit--;
		for (u32 i = SPROUT_RATES - 1; i < SPROUT_RATES; i--)
			law->mass[i] = law->mass[i / 2] / 2;
	}
}

/* Whether fewer packets than this are delivered in 5 ticks at a risk below 5 %. packets: 1/2. */
LAW_INLINE u32 sprout_is_cautious(const struct law *law, u32 packets)
{
	u64 risk = law->mass[0];

	for (u32 i = 1; i < SPROUT_RATES; i++) {
		/* In 1/128 packets; a rate is 0.39 packets in 5 ticks. */
		s64 above = (s64)packets * 64 - 25 * (2 * i + 1);
		u64 deviations = sprout_within((above * sprout_scale[i >> 2] >> 16) + 32, 63);

		risk += (law->mass[i] >> 16) * sprout_normal[deviations & 63];
	}
	return (risk - SPROUT_RISK) >> 63;
}

LAW_INLINE void sprout_forecast(struct law *law)
{
	u32 packets = 0;

	for (u32 bit = 8; bit--;)
		packets += sprout_is_cautious(law, packets + (1u << bit)) << bit;
	law->forecast = law_max(((packets << law->unit) + 1) >> 1, SPROUT_LEAST_WINDOW);
}

/* Not inlined, and not static: the verifier follows it once instead of for each tick. */
__attribute__((noinline)) int sprout_tick(struct law *law)
{
	u32 count, is_bound;

	if (!law)
		return 0;
	count = sprout_within(((u64)law->count << 8) >> (law->unit & 31), SPROUT_MOST_PACKETS << 8);
	sprout_move(law);
	is_bound = (law->tick_us - (law->count ? law->waiting_us : law->pause_us)) >> 63;
	law->silent = law->count ? 0 : law->silent + 1;
	is_bound |= law->silent - 1 < SPROUT_IGNORED_TICKS;
	sprout_observe(law, count, is_bound);
	sprout_rescale(law);
	if (law->count || !is_bound)
		sprout_forecast(law);
	law->count = 0;
	law->tick_us += SPROUT_TICK_US;
	return 0;
}

/* Finds since when segments waited, by a round trip above the shortest, and the sender's pause before them. */
LAW_INLINE void sprout_wait(struct law *law, const struct sample *sample)
{
	u64 waited_us, since_us, sent_us, pause_us;

	if (!sample->rtt_us)
		return;
	sent_us = sample->now_us > sample->rtt_us ? sample->now_us - sample->rtt_us : 0;
	pause_us = law->last_us + (sent_us > law->sent_us ? sent_us - law->sent_us : 0);
	law->pause_us = pause_us < sample->now_us ? pause_us : sample->now_us;
	if (sample->acked)
		law->sent_us = sent_us;
	law->shortest_us = law->shortest_us ? law_min(law->shortest_us, sample->rtt_us) : sample->rtt_us;
	waited_us = sample->rtt_us - law->shortest_us;
	since_us = sample->now_us > waited_us ? sample->now_us - waited_us : 0;
	if (since_us <= law->last_us)
		return;
	law->waiting_us = since_us;
	if (since_us - law->last_us > SPROUT_FORGET_US)
		sprout_forget(law);
}

LAW_INLINE void law_init(struct law *law, struct window *window) { sprout_forget(law); }

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	u64 now_us = sample->now_us, ticks;

	if (!law->last_us)
		law->tick_us = law->last_us = law->waiting_us = now_us;
	sprout_wait(law, sample);
	ticks = (now_us - law->tick_us) / SPROUT_TICK_US;
	if (ticks > SPROUT_MOST_TICKS)
		law->tick_us += (ticks - SPROUT_MOST_TICKS) * SPROUT_TICK_US;
	for (u32 i = 0; i < SPROUT_MOST_TICKS && i < ticks; i++)
		sprout_tick(law);
	if (sample->acked)
		law->last_us = now_us;
	law->count += law_min(sample->acked, LAW_LARGEST);
	if (law->forecast)
		window->cwnd = law->forecast;
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_TIMEOUT)
		window->cwnd = 1;
}
