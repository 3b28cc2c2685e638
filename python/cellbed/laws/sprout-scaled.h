/* sprout-scaled: Sprout for any rate
 *
 * As sprout, but packets of the model have 2^k segments: k grows from 0 while the mean rate is above three quarters of
 * the range, and falls while it is below a quarter and segments arrive. Motion and Poisson noise grow with it, so that
 * the caution is the publication's at 3 to 9 Mbit/s.
 *
 * Compared: not compared: the authors have no such version
 */
#define SPROUT_LARGEST_UNIT 13u
#include "sprout.h"
