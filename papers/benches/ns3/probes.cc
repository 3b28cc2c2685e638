#include "probes.h"

#include "ns3/core-module.h"
#include "ns3/internet-module.h"

#include <cstring>

using namespace ns3;

namespace {

const uint16_t FIRST_PORT = 1000;
const uint32_t HEADERS = 28;
// A number of four bytes, and whether the simulation stops.
const uint32_t PAYLOAD = 5;

Ptr<Socket> bind(Ptr<Node> node, uint16_t port) {
    auto socket = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
    socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    return socket;
}

} // namespace

Probes::Probes(const Cell& cell, uint32_t devices) {
    for (uint32_t device = 0; device < devices; ++device) {
        const uint16_t port = FIRST_PORT + device;
        auto terminal = bind(cell.terminals.Get(device), port);
        auto server = bind(cell.server, port);
        terminal->SetRecvCallback(MakeCallback(&Probes::receive, this));
        server->SetRecvCallback(MakeCallback(&Probes::receive, this));
        m_ways.push_back({terminal, InetSocketAddress(cell.serverAddress, port)});
        m_ways.push_back({server, InetSocketAddress(cell.addresses[device], port)});
    }
}

void Probes::send(Time at, uint32_t direction, uint32_t bytes, uint32_t number, bool stops) {
    std::vector<uint8_t> payload(std::max(bytes, HEADERS + PAYLOAD) - HEADERS);
    std::memcpy(payload.data(), &number, sizeof number);
    payload[4] = stops;
    auto packet = Create<Packet>(payload.data(), payload.size());
    const Way& way = m_ways.at(direction);
    Simulator::Schedule(std::max(at - Simulator::Now(), Time(0)), [way, packet] { way.from->SendTo(packet, 0, way.to); });
}

void Probes::receive(Ptr<Socket> socket) {
    while (auto packet = socket->Recv()) {
        uint8_t payload[PAYLOAD];
        packet->CopyData(payload, PAYLOAD);
        uint32_t number;
        std::memcpy(&number, payload, sizeof number);
        departures.push_back({Simulator::Now(), number});
        if (payload[4]) {
            Simulator::Stop();
        }
    }
}
