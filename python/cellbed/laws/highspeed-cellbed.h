/* highspeed-cellbed: HighSpeed TCP, to be compared with the kernel's own
 *
 * Floyd, "HighSpeed TCP for Large Congestion Windows", RFC 3649, 2003. Up to 38 segments it is NewReno. A larger
 * window w grows by a(w) segments per round trip and shrinks by b(w) w, so that w = 0.12 / p^0.835 at a loss rate p
 * (section 5).
 *
 * Constants: Low_Window 38, High_Window 83000, High_P 10^-7, High_Decrease 0.1 (section 5), within the table.
 *
 * Deviations from the publication:
 *  - a(w) and b(w) are interpolated between the windows at which a(w) passes a whole number (appendix B);
 *  - above 94717 segments, a(w) and b(w) remain as they are there;
 *  - the window grows by acknowledged segments, not by acknowledgements (RFC 3465).
 * Deviations from Linux (net/ipv4/tcp_highspeed.c), which
 *  - uses a(w) and b(w) of the next larger window in the table;
 *  - counts acknowledgements: a receiver that delays them halves the growth.
 *
 * Compared: tcp_highspeed.c, 20 Mbit/s, 1, 2, 4 flows: throughput 1.00; queue 123, 121, 124 ms for 125, 122, 129
 */
#include "law.h"

#define ROWS 73

/* Appendix B: the window at which a(w) passes row + 1 segments, and b(w) there by section 5, in thousandths. */
static const struct {
	u32 window, decrease;
} table[ROWS] = {
	{38, 500}, {118, 441}, {221, 408}, {347, 385}, {495, 366}, {663, 351}, {851, 338}, {1058, 327}, {1284, 317},
	{1529, 308}, {1793, 300}, {2076, 292}, {2378, 285}, {2699, 278}, {3039, 272}, {3399, 266}, {3778, 261},
	{4177, 256}, {4596, 251}, {5036, 246}, {5497, 241}, {5979, 237}, {6483, 233}, {7009, 229}, {7558, 225},
	{8130, 221}, {8726, 217}, {9346, 214}, {9991, 210}, {10661, 207}, {11358, 203}, {12082, 200}, {12834, 197},
	{13614, 194}, {14424, 191}, {15265, 188}, {16137, 185}, {17042, 182}, {17981, 180}, {18955, 177},
	{19965, 174}, {21013, 171}, {22101, 169}, {23230, 166}, {24402, 164}, {25618, 161}, {26881, 159},
	{28193, 156}, {29557, 154}, {30975, 151}, {32450, 149}, {33986, 146}, {35586, 144}, {37253, 142},
	{38992, 139}, {40808, 137}, {42707, 135}, {44694, 132}, {46776, 130}, {48961, 127}, {51258, 125},
	{53677, 123}, {56230, 120}, {58932, 118}, {61799, 115}, {64851, 113}, {68113, 110}, {71617, 108},
	{75401, 105}, {79517, 102}, {84035, 99}, {89053, 96}, {94717, 93},
};

struct law {
	u32 count;
};

struct response {
	u32 increase;	/* a(w), 1 / LAW_SEGMENT segments */
	u32 decrease;	/* b(w), thousandths */
};

LAW_INLINE struct response response(u32 cwnd)
{
	struct response found;
	u32 row = 0, width, part;

	for (u32 step = 64; step; step /= 2)
		if (row + step < ROWS - 1 && table[row + step].window <= cwnd)
			row += step;
	width = table[row + 1].window - table[row].window;
	part = law_min(cwnd - law_min(cwnd, table[row].window), width) * LAW_SEGMENT / width;
	found.increase = (row + 1) * LAW_SEGMENT + part;
	found.decrease = table[row].decrease - (table[row].decrease - table[row + 1].decrease) * part / LAW_SEGMENT;
	return found;
}

LAW_INLINE void law_init(struct law *law, struct window *window) {}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{
	law_increase(&law->count, window, sample, response(window->cwnd).increase);
}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{
	if (event == LAW_LOSS)
		window->ssthresh = law_max(window->cwnd - (u64)window->cwnd * response(window->cwnd).decrease / 1000, 2);
}
