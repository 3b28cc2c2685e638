// The link of CellReplay's authors in virtual time: the CellularQueue, driven by numbers instead of the clock.
//
// Compiled with a source tree of theirs (benches/cellreplay_departures.py does it). Reads "MS BYTES" lines, the arrivals with
// their headers, and writes "NUMBER MS" lines, the departures.
//
//   cellreplay_virtual_time LIGHT HEAVY OFFSETS F_MS END_MS < arrivals
#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "cellular_queue.hh"
#include "infinite_packet_queue.hh"

static uint64_t now_ms = 0;
static int sockets[2];

// These take the place of the clock and of the check of privileges.
uint64_t raw_timestamp() { return now_ms; }
uint64_t initial_timestamp() { return 0; }
uint64_t timestamp() { return now_ms; }
void assert_not_root() {}

// Where the link expects the TUN header, packets have their number behind it.
static const size_t NUMBER = 8;

static void write_due(CellularQueue &link, FileDescriptor &out) {
    while (link.pending_output()) {
        link.write_packets(out);
        char packet[4096];
        while (recv(sockets[1], packet, sizeof packet, MSG_DONTWAIT) > 0) {
            uint32_t number;
            memcpy(&number, packet + NUMBER, sizeof number);
            printf("%u %llu\n", number, static_cast<unsigned long long>(now_ms));
        }
    }
}

// Wakes the link at each of its events up to `until`.
static void advance(CellularQueue &link, uint64_t until, FileDescriptor &out) {
    while (now_ms < until) {
        link.wait_time();
        write_due(link, out);
        uint64_t wait = link.wait_time();
        if (wait == 0) wait = 1;
        now_ms = now_ms + wait > until ? until : now_ms + wait;
        link.wait_time();
        write_due(link, out);
    }
}

int main(int argc, char **argv) {
    if (argc != 6 || socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) != 0) {
        fprintf(stderr, "usage: %s LIGHT HEAVY OFFSETS F_MS END_MS < arrivals\n", argv[0]);
        return 2;
    }
    FileDescriptor out(sockets[0]);
    CellularQueue link("link", argv[1], argv[2], "", true, std::unique_ptr<AbstractPacketQueue>(new InfinitePacketQueue("")),
                       true, 0, 0.0, argv[3], atoi(argv[4]), "virtual time");
    unsigned long long at, size;
    for (uint32_t number = 0; scanf("%llu %llu", &at, &size) == 2; ++number) {
        advance(link, at, out);
        write_due(link, out);
        std::string packet(size, 'x');
        memcpy(&packet[NUMBER], &number, sizeof number);
        link.read_packet(packet);
        write_due(link, out);
    }
    advance(link, strtoull(argv[5], nullptr, 10), out);
    return 0;
}
