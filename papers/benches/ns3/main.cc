// ns-3's LTE as a network that another program drives in virtual time, over standard input and output.
//
//   ns3_lte DESCRIPTION
//
// Commands, one a line; times in ns since the begin, at which all terminals are attached and other users are active:
//
//   s AT DIRECTION BYTES NUMBER   send a packet; direction: 2 · device for its uplink, one more for its downlink
//   q AT DIRECTION BYTES NUMBER   the same, for a packet whose departure stops no advance
//   a UNTIL                       advance to the first departure of a packet of "s", at the latest to a time
//
// The answer to an advance is a line "d AT NUMBER" for each departure, in order, then "t NOW". A packet without a
// departure was lost.
#include "probes.h"
#include "traffic.h"

#include "ns3/core-module.h"

#include <cstdio>

using namespace ns3;

namespace {

const Time BEGIN = Seconds(4);

void advance(Time until) {
    const auto end = Simulator::Schedule(until - Simulator::Now(), [] { Simulator::Stop(); });
    Simulator::Run();
    Simulator::Cancel(end);
}

long long nanoseconds(Time at) {
    return (at - BEGIN).GetNanoSeconds();
}

void answer(Probes& probes) {
    for (const auto& departure : probes.departures) {
        std::printf("d %lld %u\n", nanoseconds(departure.at), departure.number);
    }
    probes.departures.clear();
    std::printf("t %lld\n", nanoseconds(Simulator::Now()));
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DESCRIPTION < commands\n", argv[0]);
        return 2;
    }
    const Description description = readDescription(argv[1]);
    const Cell cell = buildCell(description);
    startTraffic(cell, description);
    Probes probes(cell, description.devices);
    advance(BEGIN);
    char line[128];
    while (std::fgets(line, sizeof line, stdin)) {
        long long at;
        unsigned direction, bytes, number;
        const bool sends = line[0] == 's' || line[0] == 'q';
        const int fields = std::sscanf(line + 1, "%lld %u %u %u", &at, &direction, &bytes, &number);
        if (sends && fields == 4 && direction < 2 * description.devices) {
            probes.send(BEGIN + NanoSeconds(at), direction, bytes, number, line[0] == 's');
        } else if (line[0] == 'a' && fields == 1) {
            advance(std::max(BEGIN + NanoSeconds(at), Simulator::Now()));
            answer(probes);
        } else {
            std::fprintf(stderr, "wrong command: %s", line);
            return 2;
        }
    }
    Simulator::Destroy();
    return 0;
}
