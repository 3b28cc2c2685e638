// A radio network of one or two base stations, with its core and a server behind it.
#pragma once

#include "description.h"

#include "ns3/ipv4-address.h"
#include "ns3/node-container.h"

struct Cell {
    // The helpers own parts of the network.
    ns3::Ptr<ns3::Object> radio, core;
    ns3::Ptr<ns3::Node> server;
    ns3::Ipv4Address serverAddress;
    // The measured devices, then the other users.
    ns3::NodeContainer terminals;
    std::vector<ns3::Ipv4Address> addresses;
};

Cell buildCell(const Description& description);
