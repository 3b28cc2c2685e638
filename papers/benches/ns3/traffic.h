// The traffic of the users that share the cell.
#pragma once

#include "cell.h"

void startTraffic(const Cell& cell, const Description& description);
