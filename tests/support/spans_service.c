/* Reports a span of each request that is an argument, and checks that errno does not change. */
#include <assert.h>
#include "cellbed_spans.h"
int main(int count, char **request) {
    int64_t begin = cellbed_now();
    assert(begin > 0);
    for (int i = 1; i < count; i++) {
        errno = ENOTTY;
        cellbed_span(request[i], "query", begin, begin + i);
        assert(errno == ENOTTY);
    }
    cellbed_span(NULL, "query", begin, begin);
    return 0;
}
