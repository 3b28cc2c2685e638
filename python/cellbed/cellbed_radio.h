/* The state of a tower's radio links, for programs on its node: the page that the emulator writes.
 *
 *     struct radio radio;
 *     struct radio_link link;
 *     if (radio_open(&radio, getenv("CELLBED_RADIO")) == 0)
 *         for (uint32_t i = 0; i < radio.count; i++)
 *             printf("%llu\n", (unsigned long long)(radio_read(&radio, i, &link), link.downlink.queued_bytes));
 *
 * Fields are those of radio.py beside this file, little-endian as the machines that run cellbed. */
#ifndef CELLBED_RADIO_H
#define CELLBED_RADIO_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One direction of a radio link. offered_bytes: UINT64_MAX without a limit. */
struct radio_way {
    uint64_t queued_bytes, queued_packets, offered_bytes, delivered_bytes, dropped_packets;
    uint32_t sharers, closed;
};

/* The radio link of an endpoint. */
struct radio_link {
    uint8_t ipv6[16], ipv4[4]; /* in network order */
    uint32_t here, reserved[2];
    struct radio_way uplink, downlink;
};

struct radio {
    const volatile uint8_t *page;
    uint32_t count;
    uint64_t window_ns, interval_ns;
};

/* Map a page. Return 0, or -1 with errno. */
static inline int radio_open(struct radio *radio, const char *path)
{
    struct stat status;
    uint32_t version;
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    void *page = MAP_FAILED;
    if (fstat(file, &status) == 0 && status.st_size >= 64)
        page = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        return -1;
    memcpy(&version, (uint8_t *)page + 8, 4);
    memcpy(&radio->count, (uint8_t *)page + 12, 4);
    memcpy(&radio->window_ns, (uint8_t *)page + 24, 8);
    memcpy(&radio->interval_ns, (uint8_t *)page + 32, 8);
    if (memcmp(page, "cellbed", 8) != 0 || version != 1 ||
        (uint64_t)status.st_size < 64 + 2 * (64 + 128 * (uint64_t)radio->count)) {
        munmap(page, (size_t)status.st_size);
        errno = EINVAL;
        return -1;
    }
    radio->page = (const volatile uint8_t *)page;
    return 0;
}

/* Copy link `number`. Return the time of the snapshot, ns of CLOCK_MONOTONIC. */
static inline uint64_t radio_read(const struct radio *radio, uint32_t number, struct radio_link *link)
{
    const volatile uint64_t *sequence = (const volatile uint64_t *)(radio->page + 16);
    for (;;) {
        uint64_t snapshot = *sequence, time_ns;
        const volatile uint8_t *begin = radio->page + 64 + snapshot % 2 * (64 + 128 * (uint64_t)radio->count);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        memcpy(&time_ns, (const void *)begin, 8);
        memcpy(link, (const void *)(begin + 64 + 128 * (uint64_t)number), sizeof *link);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (*sequence == snapshot)
            return time_ns;
    }
}

#endif
