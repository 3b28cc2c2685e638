/* c2tcp: C2TCP over CUBIC
 *
 * Abbasloo, Xu & Chao, "C2TCP: A flexible cellular TCP to meet stringent delay requirements", IEEE JSAC 37(4), 2019: a
 * loss-based law, here cubic with HyStart, under a bound of the round trip, the setpoint. While round trips keep it,
 * each acknowledgement grows the window by another setpoint / (round trip · window). When all have exceeded it for an
 * interval, the window begins again at 1 with the loss-based law's ssthresh, and the next interval is shorter, by the
 * square root of the number of such cuts, as in CoDel.
 *
 * Deviations from the authors' Linux patch (4.13, version 2): setpoint and interval are twice the shortest round trip,
 * throughout: the tuner for an application's target, in user space, is left out. Times are in us and the growth counts
 * fractions, not whole ms. The window grows only while it limits the sender. Round trips during repairs are not seen. A
 * timeout begins the interval again.
 *
 * The acknowledgement of a cut grows the window, as in the patch: with a window of 1 the next segment would wait for the
 * receiver's delayed acknowledgement, which again exceeds the setpoint.
 *
 * Compared: the patch, no tuner, 20 Mbit/s, 4 recordings: throughput 1.00-1.12, round trip 1.01-1.16; 4 flows less fair
 */
#define CUBIC_ONLY_FUNCTIONS
#include "cubic-both.h"

/* Setpoint and interval, shortest round trips: first alpha of the authors' patch, and their tuner without a target. */
#define C2TCP_SETPOINT 2u
/* Products of times fit 64 bits: intervals become no shorter, and round trips of half a minute are not bounded. */
#define C2TCP_MOST_CUTS 4096u
#define C2TCP_LONGEST_US (1u << 25)

struct law {
	struct cubic cubic;
	u64 since_us;		/* the interval began */
	u32 is_above;		/* the last round trip exceeded the setpoint */
	u32 cuts;		/* since the setpoint was kept */
	u32 min_rtt_us;		/* cubic's is forgotten at a timeout */
	u64 count;		/* segments to grow by, times the window; 1024ths */
};
#define LAW_SHOWN(show) show(min_rtt_us) show(is_above) show(cuts)

/* Whether `us` exceeds interval / sqrt(cuts), without the root. */
LAW_INLINE int c2tcp_is_over(u64 us, u64 interval_us, u32 cuts)
{
	us = us < C2TCP_LONGEST_US ? us : C2TCP_LONGEST_US;
	return us * us * law_max(cuts, 1) > interval_us * interval_us;
}

/* Grows the window by setpoint / (round trip · window). */
LAW_INLINE void c2tcp_grow(struct law *law, struct window *window, u32 rtt_us, u64 setpoint_us)
{
	law->count += setpoint_us * 1024 / rtt_us;
	if (law->count >> 10 >= window->cwnd) {
		law->count -= (u64)window->cwnd << 10;
		window->cwnd++;
	}
}

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	u64 setpoint_us;

	if (sample->rtt_us && (!law->min_rtt_us || sample->rtt_us < law->min_rtt_us))
		law->min_rtt_us = sample->rtt_us;
	setpoint_us = C2TCP_SETPOINT * (u64)law->min_rtt_us;

	if (sample->rtt_us > setpoint_us) {
		if (!law->is_above) {
			law->is_above = 1;
			law->since_us = sample->now_us;
		} else if (c2tcp_is_over(sample->now_us - law->since_us, setpoint_us, law->cuts)) {
			law->cuts = law_min(law->cuts + 1, C2TCP_MOST_CUTS);
			law->since_us = sample->now_us;
			cubic_event(&law->cubic, window, LAW_LOSS);
			window->cwnd = 1;
			law->count = 0;
		}
	} else if (sample->rtt_us) {
		law->is_above = 0;
		law->cuts = 0;
		if (sample->flags & LAW_WINDOW_LIMITED)
			c2tcp_grow(law, window, sample->rtt_us, setpoint_us);
	}
	cubic_ack(&law->cubic, window, sample);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	cubic_event(&law->cubic, window, event);
	law->count = 0;
	if (event == LAW_TIMEOUT)
		law->is_above = law->cuts = 0;
}
