/* Reports spans of a service, or requests of a client, to cellbed, from C or C++ on Linux. Copy this file into the
 * program.
 *
 *     int64_t begin = cellbed_now();
 *     query();
 *     cellbed_span(request, "database", begin, cellbed_now());
 *
 *     cellbed_request("checkout", begin, cellbed_now(), "ok", 0);
 *
 * Without cellbed (no CELLBED_SPANS or CELLBED_REQUESTS in the environment) nothing happens. No call waits or fails, or
 * changes errno; threads may call at the same time. The protocols: docs/reference/spans.md and requests.md.
 */
#ifndef CELLBED_SPANS_H
#define CELLBED_SPANS_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A socket of cellbed, by the variable of the environment that names it. */
struct cellbed_sender {
    const char *variable;
    int socket;
    int64_t next_try;
    long dropped;
};

static struct cellbed_sender cellbed_spans = {"CELLBED_SPANS", -1, 0, 0};
static struct cellbed_sender cellbed_requests = {"CELLBED_REQUESTS", -1, 0, 0};

/* The clock of spans and requests, nanoseconds. */
static inline int64_t cellbed_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int cellbed_connect(struct cellbed_sender *sender, const char *path) {
    struct sockaddr_un address;
    int size = 1 << 20, none = -1, fresh;
    if (strlen(path) >= sizeof address.sun_path || cellbed_now() < sender->next_try) return -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    fresh = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fresh < 0) return -1;
    setsockopt(fresh, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (connect(fresh, (struct sockaddr *)&address, sizeof address) != 0) {
        sender->next_try = cellbed_now() + 1000000000;
        close(fresh);
    } else if (!__atomic_compare_exchange_n(&sender->socket, &none, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        close(fresh);
    }
    return __atomic_load_n(&sender->socket, __ATOMIC_SEQ_CST);
}

/* Send a line, or drop and count it. */
static inline void cellbed_send(struct cellbed_sender *sender, const char *format, ...) {
    const char *path = getenv(sender->variable);
    int error = errno, to, size = 0;
    char line[512];
    va_list values;
    long lost;
    if (path == NULL || *path == 0) return;
    lost = __atomic_exchange_n(&sender->dropped, 0, __ATOMIC_SEQ_CST);
    if (lost > 0) size = snprintf(line, sizeof line, "!dropped %ld\n", lost);
    va_start(values, format);
    size += vsnprintf(line + size, sizeof line - (size_t)size, format, values);
    va_end(values);
    to = __atomic_load_n(&sender->socket, __ATOMIC_SEQ_CST);
    if (to < 0) to = cellbed_connect(sender, path);
    if (to < 0 || size >= (int)sizeof line || send(to, line, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        __atomic_fetch_add(&sender->dropped, lost + 1, __ATOMIC_SEQ_CST);
        if (to >= 0 && size < (int)sizeof line && errno != EAGAIN && errno != EINTR &&
            __atomic_compare_exchange_n(&sender->socket, &to, -1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            close(to); /* cellbed has gone */
        }
    }
    errno = error;
}

/* Report that `request` spent the time from `begin_ns` to `end_ns` (of cellbed_now) in `name`. request: value of the
 * HTTP header Cellbed-Request, or "ADDRESS:PORT/NUMBER": address and port of the client, and how many requests came
 * before on its connection. */
static inline void cellbed_span(const char *request, const char *name, int64_t begin_ns, int64_t end_ns) {
    if (request == NULL || *request == 0) return;
    cellbed_send(&cellbed_spans, "%s %s %lld %lld\n", request, name, (long long)begin_ns, (long long)end_ns);
}

/* Report a request of this client. name: without spaces. outcome: ok, failed, timed-out or lost. intended_ns: when it
 * should have begun, in an open loop; 0 where it began as intended. */
static inline void cellbed_request(const char *name, int64_t begin_ns, int64_t end_ns, const char *outcome,
                                   int64_t intended_ns) {
    cellbed_send(&cellbed_requests, "%s %lld %lld %s %lld\n", name, (long long)begin_ns, (long long)end_ns, outcome,
                 (long long)(intended_ns > 0 ? intended_ns : begin_ns));
}

#endif
