"""Congestion control laws of tests."""

from pathlib import Path

FIXED = """/* {name}: A window of {window} segments
 *
 * A law of tests.
 */
#include "law.h"

struct law {{
	u32 unused;
}};

LAW_INLINE void law_init(struct law *law, struct window *window) {{ window->cwnd = {window}; }}

LAW_INLINE void law_ack(struct law *law, struct window *window, const struct sample *sample)
{{
	{ack}
	window->cwnd = {window};
}}

LAW_INLINE void law_event(struct law *law, struct window *window, enum event event)
{{
	window->ssthresh = {window};
}}
"""


def fixed(path: Path, window: int = 2, ack: str = "") -> Path:
    """Write a law with a fixed window. ack: what it does besides with each acknowledgement."""
    path.write_text(FIXED.format(name=path.stem, window=window, ack=ack))
    return path
