/* Longest queue drop as in datacentre/crates/fabric/src/ran/buffer.rs. */
#define ADMISSION_REPLACES
#include "admission.h"

struct user_state {};
struct cell_state {};

u32 admission_offer(struct sim *sim, struct buffer *buffer, u32 user, u32 bytes)
{
	struct queue *queues = buffer->queues;
	u32 longest = 0;

	if (queues[user].packets >= buffer->user_packets)
		return ADMISSION_REFUSE;
	if (buffer->packets < buffer->capacity)
		return ADMISSION_ADMIT;
	for (u32 each = 1; each < buffer->users; each++)
		if (queues[each].packets > queues[longest].packets
		    || (queues[each].packets == queues[longest].packets
			&& queues[each].threshold > queues[longest].threshold))
			longest = each;
	return queues[user].packets + 1 >= queues[longest].packets ? ADMISSION_REFUSE : longest;
}

void admission_open(struct sim *sim, struct buffer *buffer, u32 user, u32 active)
{
	u32 part = buffer->capacity / active;

	part = part < buffer->user_packets ? part : buffer->user_packets;
	buffer->queues[user].threshold = part ? part : 1;
}

void admission_report(struct sim *sim, struct buffer *buffer, u32 user, u32 reported)
{
	struct queue *queue = &buffer->queues[user];
	u32 space = buffer->capacity - buffer->packets;

	if (reported > queue->threshold && reported - queue->threshold > space)
		reported = queue->threshold + space;
	queue->threshold = reported;
}
