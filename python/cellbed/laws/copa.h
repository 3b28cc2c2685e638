/* copa: Copa
 *
 * V. Arun and H. Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, sections
 * 2.1 and 2.2. The window moves towards the target rate 1/(delta dq), where dq = RTTstanding -
 * RTTmin; the velocity doubles while the window moves in one direction; the pacing rate is 2 cwnd / RTTstanding. If
 * the queue was never nearly empty in five round trips, a buffer-filling flow is competing: 1/delta then grows by 1
 * per round trip and is halved at a loss. Velocity and 1/delta change as in the authors' implementation (genericCC).
 *
 * Deviations:
 * - Minima and maxima over a period come from eighths of it: they cover between 7/8 and all of the period.
 * - A queue is nearly empty if dq <= 0.1 (RTTmax - RTTmin). With "<", a path without any jitter would never be empty.
 * - The velocity doubles from the second round trip in one direction on, not from the third, and is at most delta cwnd,
 *   both as in genericCC. The direction of a round trip is the one of most of its acknowledgements. The velocity returns
 *   to 1 at the end of a round trip in the other direction, not at the first acknowledgement of it as in mvfst: the
 *   window then overshoots, the queue empties, and several flows do not take each other for one that fills the queue.
 * - 1/delta is an integer and at least 2: halving rounds down.
 * - The window grows only while it limits the sender, and is at least 2 segments.
 * - A timeout sets the window to 2 segments and begins slow start, similar to RFC 5681. Other losses change nothing
 *   in the default mode, as published.
 *
 * Compared: genericCC, 20 Mbit/s, 1, 2, 4 flows: throughput 0.99, 1.12, 1.03; queue 3.6, 4.4, 32 ms for 2.4, 5.3, 22
 */
#define LAW_OWNS_WINDOW
#include "law.h"

#define COPA_RTT_MIN_US 10000000u	/* period of RTTmin, section 2.1 */
#define COPA_STANDING 2			/* RTTstanding is the minimum over 1/2 smoothed round trip, section 2.1 */
#define COPA_PACING 2			/* pacing rate in windows per RTTstanding, section 2.1 */
#define COPA_DEFAULT 2			/* 1/delta in the default mode, section 2.2, and the least */
#define COPA_EMPTY_RTTS 5		/* the queue must be nearly empty once in these round trips, section 2.2 */
#define COPA_EMPTY_SHARE 10		/* nearly empty: below 1/10 of the variation of round trips, section 2.2 */
#define COPA_MAX_RTTS 4			/* period of RTTmax in round trips, section 2.2 */
#define COPA_MAX_INVERSE 65536u		/* largest 1/delta, against overflow */
#define COPA_LEAST 2			/* least window, segments */
#define COPA_SHIFT 16			/* the window counts 1/2^16 segments */
#define COPA_FIRST_RATE 2000000u	/* bytes per second for each segment of the window until a round trip is known */
#define COPA_SLOTS 8			/* parts of a filter's period; a power of 2 */

/* The minimum over a period; 0: no value. */
struct copa_filter {
	u64 began_us;		/* of the newest slot */
	u32 newest;
	u32 lowest[COPA_SLOTS];
};

enum { COPA_LEVEL, COPA_UP, COPA_DOWN };

struct law {
	struct copa_filter long_term, recent, inverted;
	u64 round_us;		/* beginning of the round trip */
	u64 empty_us;		/* the last time when the queue was nearly empty; 0: not measured */
	u32 rtt_min_us, standing_us, rtt_max_us;
	u32 fraction;		/* of the window */
	u32 inverse;		/* 1/delta */
	u32 velocity;
	u32 direction;		/* of the round trip before */
	u32 ups, downs;		/* segments acknowledged below and above the target in this round trip */
	u32 is_steady;		/* slow start is over */
	u32 is_competitive;
	u32 is_loss;		/* in this round trip */
};
#define LAW_SHOWN(show) show(rtt_min_us) show(standing_us) show(velocity) show(is_competitive)

LAW_INLINE u32 copa_lowest(struct copa_filter *filter, u64 now_us, u32 period_us, u32 value)
{
	u32 slot_us = law_max(period_us / COPA_SLOTS, 1), newest = filter->newest % COPA_SLOTS, lowest = value, i;

	for (i = 0; i < COPA_SLOTS && now_us - filter->began_us >= slot_us; i++) {
		newest = (newest + 1) % COPA_SLOTS;
		filter->lowest[newest] = 0;
		filter->began_us += slot_us;
	}
	if (now_us - filter->began_us >= slot_us)
		filter->began_us = now_us;
	filter->newest = newest;
	if (!filter->lowest[newest] || value < filter->lowest[newest])
		filter->lowest[newest] = value;
	for (i = 0; i < COPA_SLOTS; i++)
		if (filter->lowest[i])
			lowest = law_min(lowest, filter->lowest[i]);
	return lowest;
}

LAW_INLINE void copa_measure(struct law *law, const struct sample *sample, u32 srtt_us)
{
	u32 rtt_us = sample->rtt_us;
	u64 now_us = sample->now_us;

	law->rtt_min_us = copa_lowest(&law->long_term, now_us, COPA_RTT_MIN_US, rtt_us);
	law->standing_us = copa_lowest(&law->recent, now_us, srtt_us / COPA_STANDING, rtt_us);
	law->rtt_max_us = ~copa_lowest(&law->inverted, now_us, srtt_us * COPA_MAX_RTTS, ~rtt_us);
}

/* Section 2.2. */
LAW_INLINE void copa_select_mode(struct law *law, u64 now_us, u32 queueing_us, u32 srtt_us)
{
	if (!law->empty_us || (u64)queueing_us * COPA_EMPTY_SHARE <= law->rtt_max_us - law->rtt_min_us)
		law->empty_us = now_us;
	law->is_competitive = now_us - law->empty_us > (u64)srtt_us * COPA_EMPTY_RTTS;
	if (!law->is_competitive)
		law->inverse = COPA_DEFAULT;
}

/* Once per round trip: velocity and, in competitive mode, delta. */
LAW_INLINE void copa_end_round(struct law *law)
{
	u32 direction = law->ups == law->downs ? COPA_LEVEL : law->ups > law->downs ? COPA_UP : COPA_DOWN;

	law->velocity = direction == COPA_LEVEL || direction != law->direction ? 1 : law->velocity * 2;
	law->direction = direction;
	law->ups = law->downs = 0;
	if (law->is_competitive && !law->is_loss)
		law->inverse = law_min(law->inverse + 1, COPA_MAX_INVERSE);
	law->is_loss = 0;
}

LAW_INLINE void law_init(struct law *law, struct window *window)
{
	law->inverse = COPA_DEFAULT;
	law->velocity = 1;
	window->pacing_rate = (u64)window->cwnd * COPA_FIRST_RATE;
}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	u32 srtt_us = sample->srtt_us ? sample->srtt_us : sample->rtt_us, cwnd = law_max(window->cwnd, 1), queueing_us;
	u64 current = ((u64)cwnd << COPA_SHIFT) + law->fraction, least = (u64)COPA_LEAST << COPA_SHIFT, step;
	int is_limited = sample->flags & LAW_WINDOW_LIMITED, is_below;

	if (sample->rtt_us)
		copa_measure(law, sample, srtt_us);
	if (!law->standing_us)
		return;
	queueing_us = law->standing_us - law_min(law->rtt_min_us, law->standing_us);
	copa_select_mode(law, sample->now_us, queueing_us, srtt_us);

	/* cwnd / RTTstanding <= 1 / (delta dq), without divisions. */
	is_below = (u64)cwnd * queueing_us <= (u64)law->inverse * law->standing_us;
	if (!is_below)
		law->is_steady = 1;
	step = (u64)sample->acked << COPA_SHIFT;
	if (law->is_steady) {
		if (!is_below)
			law->downs += sample->acked;
		else if (is_limited)
			law->ups += sample->acked;
		if (law->velocity * law->inverse > cwnd)
			law->velocity = law_max(law->velocity / 2, 1);
		step = ((u64)law->velocity * law->inverse << COPA_SHIFT) / cwnd * sample->acked;
	}
	if (!is_below)
		current = current > least + step ? current - step : least;
	else if (is_limited)
		current += step;
	if (current > (u64)LAW_LARGEST << COPA_SHIFT)
		current = (u64)LAW_LARGEST << COPA_SHIFT;
	window->cwnd = current >> COPA_SHIFT;
	law->fraction = current & ((1u << COPA_SHIFT) - 1);
	if (sample->now_us - law->round_us > sample->rtt_us) {
		law->round_us = sample->now_us;
		copa_end_round(law);
	}
	window->pacing_rate = (u64)COPA_PACING * window->cwnd * sample->mss * 1000000u / law->standing_us;
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_LOSS) {
		law->is_loss = 1;
		if (law->is_competitive)
			law->inverse = law_max(law->inverse / 2, COPA_DEFAULT);
		return;
	}
	window->cwnd = COPA_LEAST;
	law->fraction = 0;
	law->velocity = 1;
	law->direction = COPA_LEVEL;
	law->ups = law->downs = 0;
	law->is_steady = 0;
	/* Nothing was measured during the outage. */
	law->empty_us = 0;
}
