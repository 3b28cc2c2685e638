/* Reports a request of each outcome that is an argument, and checks that errno does not change. */
#include <assert.h>
#include "cellbed_spans.h"
int main(int count, char **outcome) {
    for (int i = 1; i < count; i++) {
        int64_t begin = cellbed_now();
        errno = ENOTTY;
        cellbed_request("order", begin, begin + i, outcome[i], i == 1 ? begin - 1 : 0);
        assert(errno == ENOTTY);
    }
    return 0;
}
