/* cubic-off: CUBIC without HyStart
 *
 * Slow start ends at the first loss. Otherwise as cubic-both.
 */
#define CUBIC_HYSTART_TRAIN 0
#define CUBIC_HYSTART_DELAY 0
#include "cubic-both.h"
