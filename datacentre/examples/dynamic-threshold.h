/* Dynamic thresholds: a queue may have `share` times the free part of the buffer (Choudhury & Hahne, IEEE/ACM
 * Transactions on Networking 6(2), 1998). */
#define CONSTANTS(constant) constant(share, 1.0)
#include "admission.h"

struct user_state {};
struct cell_state {};

static void update(struct sim *sim, struct buffer *buffer, u32 user)
{
	buffer->queues[user].threshold = sim->constants->share * (buffer->capacity - buffer->packets);
}

u32 admission_offer(struct sim *sim, struct buffer *buffer, u32 user, u32 bytes)
{
	update(sim, buffer, user);
	return buffer->queues[user].packets < buffer->queues[user].threshold ? ADMISSION_ADMIT : ADMISSION_REFUSE;
}

/* pDCell sends as much as the threshold allows: keep it up to date between packets, too. */
void admission_report(struct sim *sim, struct buffer *buffer, u32 user, u32 reported) { update(sim, buffer, user); }
