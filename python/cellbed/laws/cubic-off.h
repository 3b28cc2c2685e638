/* cubic-off: CUBIC without HyStart
 *
 * Slow start ends at the first loss. Otherwise as cubic-both.
 *
 * Compared: not compared: cubic-both without a part
 */
#define CUBIC_HYSTART_TRAIN 0
#define CUBIC_HYSTART_DELAY 0
#include "cubic-both.h"
