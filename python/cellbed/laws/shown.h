/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The variables that a law shows, if it does. Included after the law.
 */
#ifdef LAW_SHOWN
#define LAW_COUNT(name) +1
#define LAW_STORE(name) *shown++ = law->name;
_Static_assert(0 LAW_SHOWN(LAW_COUNT) <= LAW_MOST_SHOWN, "LAW_SHOWN has more than LAW_MOST_SHOWN variables");

LAW_INLINE void law_show(const struct law *law, u64 *shown) { LAW_SHOWN(LAW_STORE) }
#endif
