// The description of a scenario: lines of a key and its values, as written by scenarios.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// A user who shares the cell. kind: "on-off" (UDP at constant rates during exponential times) or "download" (one
// endless TCP connection towards the user).
struct Background {
    double distanceM;
    std::string kind;
    double downMbps, upMbps;
    double onS, offS;
};

struct Description {
    uint32_t seed = 1;
    uint64_t run = 1;
    // Measured devices at one place, each with a separate fading.
    uint32_t devices = 1;
    // Resource blocks: 6, 15, 25, 50, 75 or 100.
    uint32_t blocks = 50;
    // Prefix of a scheduler of ns-3, as in ns3::PfFfMacScheduler.
    std::string scheduler = "Pf";
    bool harq = true;
    bool acknowledged = false;
    uint32_t bufferBytes = 1000000;
    double distanceM = 300;
    double speedMps = 0;
    // Time since the begin of the course of a moving device.
    double courseS = 0;
    // Distance to a second base station, with handover; 0 without one.
    double siteM = 0;
    // One-way delay between the gateway and the server.
    double coreMs = 10;
    // A trace of fading (matrix of blocks and milliseconds, dB) and its length; empty without fading.
    std::string fading;
    uint32_t fadingMs = 0;
    std::vector<Background> users;
};

// Reads a description; exits with an error that names the faulty line.
Description readDescription(const char* path);
