/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A law as a shared object, for virtual time and tests. Compiled with -include LAW.
 */
#include "shown.h"

#ifdef LAW_OWNS_WINDOW
const u32 cellbed_law_owns_window = 1;
#else
const u32 cellbed_law_owns_window = 0;
#endif
/* Changes with the types that are passed. */
const u32 cellbed_law_interface = sizeof(struct window) << 16 | sizeof(struct sample);
const u32 cellbed_law_size = sizeof(struct law);
/* What the law has set to 0: 1: cwnd, 2: ssthresh. */
u32 cellbed_law_zero;

static inline void cellbed_note_window(const struct window *window)
{
	if (!window->cwnd)
		cellbed_law_zero = 1;
	else if (!window->ssthresh && !cellbed_law_zero)
		cellbed_law_zero = 2;
}

void cellbed_law_init(struct law *law, struct window *window)
{
	law_init(law, window);
	cellbed_note_window(window);
}

void cellbed_law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	law_ack(law, window, sample);
	cellbed_note_window(window);
}

void cellbed_law_event(struct law *law, struct window *window, u32 event)
{
	law_event(law, window, event);
	cellbed_note_window(window);
}

void cellbed_law_show(const struct law *law, u64 *shown)
{
#ifdef LAW_SHOWN
	law_show(law, shown);
#endif
}
