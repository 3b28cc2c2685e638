/* cubic-delay: CUBIC with HyStart by delay only
 *
 * Slow start ends when a round's round trips are longer than the shortest by an eighth of it. Otherwise as cubic-both.
 *
 * Compared: not compared: cubic-both without a part
 */
#define CUBIC_HYSTART_TRAIN 0
#include "cubic-both.h"
