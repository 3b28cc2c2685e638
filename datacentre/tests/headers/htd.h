/* Highest threshold decrease as in datacentre/crates/fabric/src/ran/buffer.rs. */
#include "admission.h"

struct user_state {};
struct cell_state {};

static u32 least(u32 a, u32 b) { return a < b ? a : b; }

u32 admission_offer(struct sim *sim, struct buffer *buffer, u32 user, u32 bytes)
{
	struct queue *longest = &buffer->queues[0];

	if (buffer->queues[user].packets >= buffer->queues[user].threshold)
		return ADMISSION_REFUSE;
	if (buffer->packets < buffer->capacity)
		return ADMISSION_ADMIT;
	for (u32 each = 1; each < buffer->users; each++) {
		struct queue *queue = &buffer->queues[each];

		if (queue->packets > longest->packets
		    || (queue->packets == longest->packets && queue->threshold > longest->threshold))
			longest = queue;
	}
	if (longest->threshold > 1)
		longest->threshold--;
	return ADMISSION_REFUSE;
}

void admission_open(struct sim *sim, struct buffer *buffer, u32 user, u32 active)
{
	u32 part = least(buffer->capacity / active, buffer->user_packets);

	buffer->queues[user].threshold = part ? part : 1;
}

void admission_report(struct sim *sim, struct buffer *buffer, u32 user, u32 reported)
{
	struct queue *queue = &buffer->queues[user];
	u32 space = buffer->capacity - buffer->packets;

	if (reported > queue->threshold)
		reported = queue->threshold + least(reported - queue->threshold, space);
	queue->threshold = reported;
}
