/* cubic-train: CUBIC with HyStart by train only
 *
 * Slow start ends when acknowledgements come for half a round trip without a gap. Otherwise as cubic-both.
 *
 * Compared: not compared: cubic-both without a part
 */
#define CUBIC_HYSTART_DELAY 0
#include "cubic-both.h"
