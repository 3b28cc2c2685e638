// Mahimahi's own link in virtual time: its LinkQueue and packet queues, driven by numbers instead of the clock.
//
// Compiled against a built source tree of Mahimahi (benches/mahimahi_departures.py does it). Reads "MS BYTES" lines, the
// arrivals with their headers, and writes the link's log.
//
//   mahimahi_virtual_time TRACE LOG QUEUE ARGUMENTS once|looped END_MS SEED < arrivals
#include <fcntl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "codel_packet_queue.hh"
#include "drop_head_packet_queue.hh"
#include "drop_tail_packet_queue.hh"
#include "file_descriptor.hh"
#include "infinite_packet_queue.hh"
#include "link_queue.hh"
#include "pie_packet_queue.hh"

static uint64_t now_ms = 0;
static unsigned int seed = 0;

// These take the place of the clock, of the check of privileges and of the system's random numbers.
uint64_t raw_timestamp() { return now_ms; }
uint64_t initial_timestamp() { return 0; }
uint64_t timestamp() { return now_ms; }
void assert_not_root() {}
unsigned int std::random_device::_M_getval() { return seed; }

static std::unique_ptr<AbstractPacketQueue> queue_of(const std::string &kind, const std::string &arguments) {
    if (kind == "infinite") return std::unique_ptr<AbstractPacketQueue>(new InfinitePacketQueue(arguments));
    if (kind == "droptail") return std::unique_ptr<AbstractPacketQueue>(new DropTailPacketQueue(arguments));
    if (kind == "drophead") return std::unique_ptr<AbstractPacketQueue>(new DropHeadPacketQueue(arguments));
    if (kind == "codel") return std::unique_ptr<AbstractPacketQueue>(new CODELPacketQueue(arguments));
    if (kind == "pie") return std::unique_ptr<AbstractPacketQueue>(new PIEPacketQueue(arguments));
    fprintf(stderr, "unknown queue %s\n", kind.c_str());
    exit(2);
}

// Wakes the link at each of its opportunities up to `until`, as an event loop without any lateness would.
static void advance(LinkQueue &link, uint64_t until, FileDescriptor &sink) {
    while (!link.finished()) {
        const uint64_t wait = link.wait_time();
        if (link.pending_output()) link.write_packets(sink);
        if (link.finished() || now_ms + wait > until) break;
        now_ms += wait;
    }
    if (!link.finished()) now_ms = until;
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: %s TRACE LOG QUEUE ARGUMENTS once|looped END_MS SEED < arrivals\n", argv[0]);
        return 2;
    }
    seed = strtoul(argv[7], nullptr, 10);
    FileDescriptor sink(open("/dev/null", O_WRONLY));
    LinkQueue link("Uplink", argv[1], argv[2], std::string(argv[5]) == "looped", false, false,
                   queue_of(argv[3], argv[4]), "virtual time");
    unsigned long long at, size;
    while (scanf("%llu %llu", &at, &size) == 2) {
        advance(link, at, sink);
        if (link.finished()) return 0;
        link.read_packet(std::string(size, 'x'));
    }
    advance(link, strtoull(argv[6], nullptr, 10), sink);
    return 0;
}
