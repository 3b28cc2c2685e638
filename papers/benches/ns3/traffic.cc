#include "traffic.h"

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"

using namespace ns3;

namespace {

const uint16_t PORT = 9;
const uint32_t PACKET_BYTES = 1372;
// All terminals are attached by then.
const double BEGIN_S = 0.5;

void sink(Ptr<Node> node, const std::string& protocol, uint16_t port) {
    PacketSinkHelper(protocol, InetSocketAddress(Ipv4Address::GetAny(), port)).Install(node);
}

void sendOnOff(Ptr<Node> from, InetSocketAddress to, double mbps, const Background& user) {
    if (mbps <= 0) {
        return;
    }
    const auto exponential = [](double mean) {
        return StringValue("ns3::ExponentialRandomVariable[Mean=" + std::to_string(mean) + "]");
    };
    OnOffHelper source("ns3::UdpSocketFactory", to);
    source.SetConstantRate(DataRate(static_cast<uint64_t>(mbps * 1e6)), PACKET_BYTES);
    source.SetAttribute("OnTime", exponential(user.onS));
    source.SetAttribute("OffTime", exponential(user.offS));
    source.Install(from).Start(Seconds(BEGIN_S));
}

} // namespace

void startTraffic(const Cell& cell, const Description& description) {
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1400));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
    for (uint32_t number = 0; number < description.users.size(); ++number) {
        const Background& user = description.users[number];
        const uint32_t index = description.devices + number;
        const auto terminal = cell.terminals.Get(index);
        const InetSocketAddress down(cell.addresses[index], PORT);
        const uint16_t port = PORT + 1 + number;
        if (user.kind == "download") {
            sink(terminal, "ns3::TcpSocketFactory", PORT);
            BulkSendHelper source("ns3::TcpSocketFactory", down);
            source.SetAttribute("MaxBytes", UintegerValue(0));
            source.Install(cell.server).Start(Seconds(BEGIN_S));
            continue;
        }
        sink(terminal, "ns3::UdpSocketFactory", PORT);
        sink(cell.server, "ns3::UdpSocketFactory", port);
        sendOnOff(cell.server, down, user.downMbps, user);
        sendOnOff(terminal, InetSocketAddress(cell.serverAddress, port), user.upMbps, user);
    }
}
