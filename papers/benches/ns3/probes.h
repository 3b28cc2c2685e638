// The packets of the measured devices: UDP datagrams that carry a number.
#pragma once

#include "cell.h"

#include "ns3/nstime.h"
#include "ns3/socket.h"

class Probes {
  public:
    struct Departure {
        ns3::Time at;
        uint32_t number;
    };

    Probes(const Cell& cell, uint32_t devices);

    // Sends a packet of an IP length (at least 33 bytes) from a device to the server (even directions) or to it (odd
    // ones); direction / 2 is the device. stops: whether the simulation stops at the departure.
    void send(ns3::Time at, uint32_t direction, uint32_t bytes, uint32_t number, bool stops);

    std::vector<Departure> departures;

  private:
    void receive(ns3::Ptr<ns3::Socket> socket);

    struct Way {
        ns3::Ptr<ns3::Socket> from;
        ns3::Address to;
    };
    std::vector<Way> m_ways;
};
