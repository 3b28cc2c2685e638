/* vegas: TCP Vegas
 *
 * Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995, in
 * the form of Linux (net/ipv4/tcp_vegas.c). Once per round trip, the window is compared with the content of the
 * base round trip.
 *
 * Deviations from the publication, as in Linux:
 *  - losses are found and repaired by TCP, and halve the window as in NewReno;
 *  - slow start doubles the window each round trip, not every second one, and ends with one segment more than fills
 *    the base round trip at the measured rate, not with 7/8 of the window (known from ns-2);
 *  - the round trip of an epoch is its smallest one: delayed acknowledgements do not count as a queue. In slow start it
 *    shows the queue that the epoch found, not the one that it made: on a deep queue, the window grows to two to
 *    four times what fills the link, and then shrinks by one segment per round trip;
 *  - the queue is cwnd (rtt - base) / base, truncated to whole segments, not cwnd (rtt - base) / rtt;
 *  - an epoch with less than three measurements grows the window as NewReno;
 *  - the base round trip is measured anew when nothing is left in flight, and after a timeout.
 * Deviations from Linux:
 *  - round trips of repairs are not measured, except after a timeout;
 *  - an epoch begins at the first acknowledgement after repairs, not at their end; after a timeout, during the repairs;
 *  - ssthresh is at least 2, and not raised to 3/4 of the window.
 *
 * Compared: tcp_vegas.c, 20 Mbit/s, 1, 2, 4 flows: throughput 1.00; queue 6.0, 14, 25 ms for 3.5, 8.3, 20
 */
#include "law.h"

/* Bounds of the queue, segments: Vegas-2,4 of the publication. */
#define ALPHA 2
#define BETA 4
/* Queue at which slow start ends, segments: Linux. */
#define GAMMA 1
/* Measurements of a usable epoch: Linux. One or two may all be delayed acknowledgements. */
#define FEWEST 3

struct law {
	u32 base_us;	/* smallest round trip; 0: none */
	u32 epoch_us;	/* smallest round trip of the epoch; 0: none */
	u32 epoch_end;
	u32 measured;	/* round trips measured in the epoch */
	u32 count;	/* of NewReno */
};
#define LAW_SHOWN(show) show(base_us) show(epoch_us)

LAW_INLINE void slow_start(struct window *window, u32 acked)
{
	window->cwnd = law_min(window->cwnd + law_min(acked, LAW_LARGEST), window->ssthresh);
}

LAW_INLINE void leave_slow_start(struct window *window)
{
	window->ssthresh = law_max(law_min(window->ssthresh, window->cwnd), 2);
}

LAW_INLINE void end_epoch(struct law *law, struct window *window, const struct sample *sample)
{
	u64 cwnd = window->cwnd;
	u64 queue = cwnd * (law->epoch_us - law->base_us) / law->base_us;

	if (window->cwnd < window->ssthresh) {
		if (queue <= GAMMA) {
			slow_start(window, sample->acked);
		} else {
			window->cwnd = law_max(law_min(cwnd, cwnd * law->base_us / law->epoch_us + 1), 2);
			leave_slow_start(window);
		}
	} else if (queue > BETA) {
		window->cwnd = law_max(window->cwnd, 3) - 1;
		leave_slow_start(window);
	} else if (queue < ALPHA) {
		window->cwnd = law_min(window->cwnd + 1, LAW_LARGEST);
	}
}

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	if (sample->rtt_us) {
		law->base_us = law->base_us ? law_min(law->base_us, sample->rtt_us) : sample->rtt_us;
		law->epoch_us = law->epoch_us ? law_min(law->epoch_us, sample->rtt_us) : sample->rtt_us;
		law->measured++;
	}
	if (law_is_round(&law->epoch_end, sample)) {
		if (law->measured < FEWEST || !law->base_us)
			law_reno_ack(&law->count, window, sample);
		else
			end_epoch(law, window, sample);
		law->epoch_us = 0;
		law->measured = 0;
	} else if (window->cwnd < window->ssthresh) {
		slow_start(window, sample->acked);
	}
	/* What is sent next begins a transmission, perhaps after a pause: the path may have changed. */
	if (!sample->in_flight)
		law->base_us = law->epoch_us = law->measured = 0;
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_LOSS)
		window->ssthresh = law_reno_ssthresh(window);
	else
		law->base_us = 0;
	law->epoch_us = law->measured = 0;
}
