/* Reports spans of requests to cellbed, from inside a service in C or C++ on Linux. Copy this file into the service.
 *
 *     int64_t begin = cellbed_now();
 *     query();
 *     cellbed_span(request, "database", begin, cellbed_now());
 *
 * request: value of the HTTP header Cellbed-Request, or "ADDRESS:PORT/NUMBER": address and port of the client, and how
 * many requests came before on its connection. Without cellbed (no CELLBED_SPANS in the environment) nothing happens.
 * No call waits or fails, or changes errno; threads may call at the same time. The protocol: docs/reference/spans.md.
 */
#ifndef CELLBED_SPANS_H
#define CELLBED_SPANS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int cellbed_spans_socket = -1;
static int64_t cellbed_spans_next_try;
static long cellbed_spans_dropped;

/* The clock of spans, nanoseconds. */
static inline int64_t cellbed_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int cellbed_spans_connect(const char *path) {
    struct sockaddr_un address;
    int size = 1 << 20, none = -1, fresh;
    if (strlen(path) >= sizeof address.sun_path || cellbed_now() < cellbed_spans_next_try) return -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    fresh = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fresh < 0) return -1;
    setsockopt(fresh, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (connect(fresh, (struct sockaddr *)&address, sizeof address) != 0) {
        cellbed_spans_next_try = cellbed_now() + 1000000000;
        close(fresh);
    } else if (!__atomic_compare_exchange_n(&cellbed_spans_socket, &none, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        close(fresh);
    }
    return __atomic_load_n(&cellbed_spans_socket, __ATOMIC_SEQ_CST);
}

/* Report that `request` spent the time from `begin_ns` to `end_ns` (of cellbed_now) in `name`. */
static inline void cellbed_span(const char *request, const char *name, int64_t begin_ns, int64_t end_ns) {
    const char *path = getenv("CELLBED_SPANS");
    int error = errno, to, size = 0;
    char line[512];
    long lost;
    if (path == NULL || *path == 0 || request == NULL || *request == 0) return;
    lost = __atomic_exchange_n(&cellbed_spans_dropped, 0, __ATOMIC_SEQ_CST);
    if (lost > 0) size = snprintf(line, sizeof line, "!dropped %ld\n", lost);
    size += snprintf(line + size, sizeof line - (size_t)size, "%s %s %lld %lld\n", request, name,
                     (long long)begin_ns, (long long)end_ns);
    to = __atomic_load_n(&cellbed_spans_socket, __ATOMIC_SEQ_CST);
    if (to < 0) to = cellbed_spans_connect(path);
    if (to < 0 || size >= (int)sizeof line || send(to, line, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        __atomic_fetch_add(&cellbed_spans_dropped, lost + 1, __ATOMIC_SEQ_CST);
        if (to >= 0 && size < (int)sizeof line && errno != EAGAIN && errno != EINTR &&
            __atomic_compare_exchange_n(&cellbed_spans_socket, &to, -1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            close(to); /* cellbed has gone */
        }
    }
    errno = error;
}

#endif
