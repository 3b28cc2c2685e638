#include "cell.h"

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/lte-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <cmath>

using namespace ns3;

namespace {

// Maximum length of a simulation.
const double COURSE_S = 4000;
// Length of a way outwards in a single cell.
const double OUTWARD_M = 250;
// The devices pass the base stations at this distance from the line between them; also the height of the antennas
// less the height of the devices.
const double ASIDE_M = 25;

void setDefaults(const Description& description) {
    const UintegerValue buffer(description.bufferBytes);
    const EnumValue mode(description.acknowledged ? LteEnbRrc::RLC_AM_ALWAYS : LteEnbRrc::RLC_UM_ALWAYS);
    Config::SetDefault("ns3::LteEnbRrc::EpsBearerToRlcMapping", mode);
    for (const std::string layer : {"ns3::LteRlcUm", "ns3::LteRlcAm"}) {
        Config::SetDefault(layer + "::MaxTxBufferSize", buffer);
        // Packets may wait as long as the buffer allows, as in the networks that CellReplay's authors measured.
        Config::SetDefaultFailSafe(layer + "::EnablePdcpDiscarding", BooleanValue(false));
    }
    // Base station: 46 dBm. Terminal: 23 dBm (3GPP TR 36.814, table A.2.1.1-2).
    Config::SetDefault("ns3::LteEnbPhy::TxPower", DoubleValue(46));
    Config::SetDefault("ns3::LteUePhy::TxPower", DoubleValue(23));
    // The wired links take trains of any length at once.
    Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", StringValue("100000p"));
}

Ptr<LteHelper> makeRadio(const Description& description) {
    auto radio = CreateObject<LteHelper>();
    // Macro cell: 128.1 + 37.6 log10(distance in km) dB (3GPP TR 36.814, table A.2.1.1-2).
    radio->SetPathlossModelType(TypeId::LookupByName("ns3::LogDistancePropagationLossModel"));
    radio->SetPathlossModelAttribute("Exponent", DoubleValue(3.76));
    radio->SetPathlossModelAttribute("ReferenceDistance", DoubleValue(1));
    radio->SetPathlossModelAttribute("ReferenceLoss", DoubleValue(128.1 - 37.6 * 3));
    radio->SetSchedulerType("ns3::" + description.scheduler + "FfMacScheduler");
    radio->SetSchedulerAttribute("HarqEnabled", BooleanValue(description.harq));
    radio->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(description.blocks));
    radio->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(description.blocks));
    if (description.siteM > 0) {
        radio->SetHandoverAlgorithmType("ns3::A3RsrpHandoverAlgorithm");
    }
    if (!description.fading.empty()) {
        const Time length = MilliSeconds(description.fadingMs);
        radio->SetFadingModel("ns3::TraceFadingLossModel");
        radio->SetFadingModelAttribute("TraceFilename", StringValue(description.fading));
        radio->SetFadingModelAttribute("TraceLength", TimeValue(length));
        radio->SetFadingModelAttribute("SamplesNum", UintegerValue(description.fadingMs));
        // The position in the trace is drawn anew after each window.
        radio->SetFadingModelAttribute("WindowSize", TimeValue(length / 2));
        radio->SetFadingModelAttribute("RbNum", UintegerValue(description.blocks));
    }
    return radio;
}

// Places a device at `x`; in motion it passes to and fro between `x` and the mirrored position at the other site, or
// further out in a single cell. The simulation begins when the device has moved for the time of its course.
void place(Ptr<Node> node, double x, double y, const Description& description, bool moves) {
    auto course = CreateObject<WaypointMobilityModel>();
    double ends[] = {x, description.siteM > 0 ? description.siteM - x : x + OUTWARD_M};
    const double leg = std::abs(ends[1] - ends[0]);
    if (moves && leg > 0) {
        const double legS = leg / description.speedMps;
        int number = std::floor(description.courseS / legS) + 1;
        double at = number * legS - description.courseS;
        const double here = ends[number % 2] + (ends[(number + 1) % 2] - ends[number % 2]) * at / legS;
        course->AddWaypoint(Waypoint(Seconds(0), Vector(here, y, 0)));
        for (; at < COURSE_S; at += legS, ++number) {
            course->AddWaypoint(Waypoint(Seconds(std::max(at, 0.001)), Vector(ends[number % 2], y, 0)));
        }
    } else {
        course->AddWaypoint(Waypoint(Seconds(0), Vector(x, y, 0)));
    }
    node->AggregateObject(course);
}

void placeAll(const Description& description, NodeContainer stations, NodeContainer terminals) {
    auto positions = CreateObject<ListPositionAllocator>();
    positions->Add(Vector(0, 0, ASIDE_M));
    positions->Add(Vector(description.siteM, 0, ASIDE_M));
    MobilityHelper fixed;
    fixed.SetPositionAllocator(positions);
    fixed.Install(stations);
    for (uint32_t number = 0; number < terminals.GetN(); ++number) {
        const bool measured = number < description.devices;
        const double x = measured ? description.distanceM : description.users[number - description.devices].distanceM;
        place(terminals.Get(number), x, ASIDE_M + number, description, measured && description.speedMps > 0);
    }
}

} // namespace

Cell buildCell(const Description& description) {
    setDefaults(description);
    RngSeedManager::SetSeed(description.seed);
    RngSeedManager::SetRun(description.run);
    auto radio = makeRadio(description);
    auto core = CreateObject<PointToPointEpcHelper>();
    radio->SetEpcHelper(core);

    Cell cell;
    cell.radio = radio;
    cell.core = core;
    cell.server = CreateObject<Node>();
    NodeContainer stations;
    stations.Create(description.siteM > 0 ? 2 : 1);
    cell.terminals.Create(description.devices + description.users.size());
    placeAll(description, stations, cell.terminals);

    InternetStackHelper stack;
    stack.Install(cell.server);
    stack.Install(cell.terminals);
    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", StringValue("100Gb/s"));
    wire.SetDeviceAttribute("Mtu", UintegerValue(60000));
    wire.SetChannelAttribute("Delay", TimeValue(Seconds(description.coreMs / 1000)));
    auto link = wire.Install(core->GetPgwNode(), cell.server);
    Ipv4AddressHelper addresses;
    addresses.SetBase("1.0.0.0", "255.0.0.0");
    cell.serverAddress = addresses.Assign(link).GetAddress(1);
    Ipv4StaticRoutingHelper routing;
    routing.GetStaticRouting(cell.server->GetObject<Ipv4>())->AddNetworkRouteTo("7.0.0.0", "255.0.0.0", 1);

    auto stationDevices = radio->InstallEnbDevice(stations);
    auto terminalDevices = radio->InstallUeDevice(cell.terminals);
    auto interfaces = core->AssignUeIpv4Address(terminalDevices);
    for (uint32_t number = 0; number < cell.terminals.GetN(); ++number) {
        cell.addresses.push_back(interfaces.GetAddress(number));
        auto routes = routing.GetStaticRouting(cell.terminals.Get(number)->GetObject<Ipv4>());
        routes->SetDefaultRoute(core->GetUeDefaultGatewayAddress(), 1);
    }
    if (description.siteM > 0) {
        radio->AddX2Interface(stations);
    }
    radio->AttachToClosestEnb(terminalDevices, stationDevices);
    return cell;
}
