/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The interface of a congestion control law: a header of pure functions in integers, which runs in the kernel
 * (kernel.c), in virtual time and in tests (host.c).
 *
 * A law begins with a comment whose first line has its name and title, defines `struct law`, and three functions:
 *
 *   law_init(law, window)            a connection is established
 *   law_ack(law, window, sample)     segments were acknowledged
 *   law_event(law, window, event)    losses or a timeout
 *
 * A window begins with TCP's initial window (10) and a threshold of LAW_UNLIMITED; a threshold may be above or below
 * cwnd. The functions set `cwnd`, `ssthresh` and, if the law paces, `pacing_rate` of the window. TCP finds and repairs
 * losses. By default it also sets the window during repairs (RFC 6937), and law_ack is not called meanwhile. A law with
 * LAW_OWNS_WINDOW gets each acknowledgement and sets the window at any time.
 *
 * No floating point, no signed division, no loop without a constant bound: the kernel's verifier refuses them. In
 * virtual time, a division by zero ends the process (in the kernel it is 0), and an endless loop never returns.
 *
 * A law may show up to LAW_MOST_SHOWN integers of `struct law` in the series of its flows:
 *
 *   #define LAW_SHOWN(show) show(base_us) show(state)
 */
#ifndef CELLBED_LAW_H
#define CELLBED_LAW_H

typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define LAW_INLINE static inline __attribute__((always_inline, unused))

/* Threshold of slow start before the first loss, segments. */
#define LAW_UNLIMITED 0x7fffffffu
/* Largest window, segments. */
#define LAW_LARGEST (1u << 24)

/* Most variables of LAW_SHOWN. */
#define LAW_MOST_SHOWN 4

struct window {
	u32 cwnd;		/* congestion window, segments */
	u32 ssthresh;		/* slow start ends at this window, segments */
	u64 pacing_rate;	/* bytes of data per second; 0: as TCP does without a law. Ignored without LAW_OWNS_WINDOW */
};

#define LAW_APP_LIMITED 1u	/* the application had less to send than the window allowed when these were sent */
#define LAW_WINDOW_LIMITED 2u	/* the window limits the sender: it may grow */
#define LAW_REPAIR 4u		/* losses are being repaired; only seen by a law with LAW_OWNS_WINDOW */

struct sample {
	u64 now_us;		/* a monotonic clock */
	u32 acked;		/* segments newly acknowledged, cumulatively or selectively */
	u32 lost;		/* segments newly found lost; 0 without LAW_OWNS_WINDOW */
	u32 in_flight;		/* segments in flight after this acknowledgement */
	u32 prior_in_flight;	/* the same before it */
	u32 rtt_us;		/* a round trip; 0: none was measured */
	u32 srtt_us;		/* the smoothed round trip (RFC 6298); 0: none yet */
	u32 delivered;		/* all segments delivered so far, modulo 2^32 */
	u32 rate_delivered;	/* segments delivered in rate_interval_us: a sample of the delivery rate (law_rate) */
	u32 rate_interval_us;	/* 0: no sample, as always without LAW_OWNS_WINDOW */
	u32 mss;		/* bytes of data in a segment */
	u32 flags;		/* LAW_APP_LIMITED, ... */
};

enum event {
	LAW_LOSS,		/* losses or a mark of congestion, once per window: set ssthresh */
	LAW_TIMEOUT,		/* a retransmission timeout, after LAW_LOSS: TCP has set cwnd to one more than is in flight */
};

LAW_INLINE u32 law_min(u32 a, u32 b) { return a < b ? a : b; }
LAW_INLINE u32 law_max(u32 a, u32 b) { return a > b ? a : b; }

/* Segments of `rate` bytes per second in `us` microseconds. Exact below 2^64 / rate microseconds. */
LAW_INLINE u32 law_segments(u64 rate, u32 us, u32 mss)
{
	u64 segments = rate * us / 1000000u / (mss ? mss : 1);

	return segments < LAW_LARGEST ? (u32)segments : LAW_LARGEST;
}

/* Delivery rate of a sample in bytes per second; 0: none. */
LAW_INLINE u64 law_rate(const struct sample *sample)
{
	if (!sample->rate_interval_us)
		return 0;
	return (u64)sample->rate_delivered * sample->mss * 1000000u / sample->rate_interval_us;
}

/* Whether a round ends: a segment is delivered that was sent after the round began. `end` begins at 0. */
LAW_INLINE int law_is_round(u32 *end, const struct sample *sample)
{
	if ((s32)(sample->delivered - *end) <= 0)
		return 0;
	*end = sample->delivered + sample->in_flight;
	return 1;
}

/* A segment of additive increase, in the units of law_increase. */
#define LAW_SEGMENT 256u

/* Slow start (RFC 5681, section 3.1), then additive increase by `increase` / LAW_SEGMENT segments per window of
 * acknowledged ones. `count` holds what has not grown the window yet. */
LAW_INLINE void law_increase(u32 *count, struct window *window, const struct sample *sample, u32 increase)
{
	u64 acked = sample->acked, total, full;

	if (!(sample->flags & LAW_WINDOW_LIMITED))
		return;
	if (window->cwnd < window->ssthresh) {
		u32 grown = acked < window->ssthresh - window->cwnd ? window->cwnd + acked : window->ssthresh;

		acked -= grown - window->cwnd;
		window->cwnd = grown;
	}
	total = *count + acked * increase;
	full = (u64)law_max(window->cwnd, 1) * LAW_SEGMENT;
	if (total >= full) {
		u64 grown = total / full;

		total -= grown * full;
		window->cwnd = grown < LAW_LARGEST ? law_min(window->cwnd + (u32)grown, LAW_LARGEST) : LAW_LARGEST;
	}
	*count = (u32)total;
}

/* NewReno (RFC 5681, section 3.1). `count` as in law_increase. */
LAW_INLINE void law_reno_ack(u32 *count, struct window *window, const struct sample *sample)
{
	law_increase(count, window, sample, LAW_SEGMENT);
}

LAW_INLINE u32 law_reno_ssthresh(const struct window *window) { return law_max(window->cwnd / 2, 2); }

#endif
