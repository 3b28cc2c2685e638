#include "description.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

Description readDescription(const char* path) {
    Description found;
    using Fields = std::istringstream;
    const std::map<std::string, std::function<void(Fields&)>> readers{
        {"seed", [&](Fields& in) { in >> found.seed; }},
        {"run", [&](Fields& in) { in >> found.run; }},
        {"devices", [&](Fields& in) { in >> found.devices; }},
        {"blocks", [&](Fields& in) { in >> found.blocks; }},
        {"scheduler", [&](Fields& in) { in >> found.scheduler; }},
        {"harq", [&](Fields& in) { in >> found.harq; }},
        {"acknowledged", [&](Fields& in) { in >> found.acknowledged; }},
        {"buffer_bytes", [&](Fields& in) { in >> found.bufferBytes; }},
        {"distance_m", [&](Fields& in) { in >> found.distanceM; }},
        {"speed_mps", [&](Fields& in) { in >> found.speedMps; }},
        {"course_s", [&](Fields& in) { in >> found.courseS; }},
        {"site_m", [&](Fields& in) { in >> found.siteM; }},
        {"core_ms", [&](Fields& in) { in >> found.coreMs; }},
        {"fading", [&](Fields& in) { in >> found.fadingMs >> found.fading; }},
        {"user",
         [&](Fields& in) {
             Background user;
             in >> user.distanceM >> user.kind >> user.downMbps >> user.upMbps >> user.onS >> user.offS;
             found.users.push_back(user);
         }},
    };
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        Fields in(line);
        std::string key;
        in >> key;
        const auto reader = readers.find(key);
        if (reader != readers.end()) {
            reader->second(in);
        }
        if (reader == readers.end() || in.fail()) {
            std::fprintf(stderr, "%s: wrong line '%s'\n", path, line.c_str());
            std::exit(2);
        }
    }
    return found;
}
