// Package measure compares stag with its competitors in one interleaved run. The
// competitors are AF_XDP without a TCP, the kernel's TCP, and stag over kernel sockets.
// The package makes its own namespaces and veth pairs, which needs root. Only the table
// micro does not need root.
//
// A run consists of tables. A table has rows, and each row is one case. A run measures
// every row once in each round. Every second round is in reverse order, so that other
// load of the machine affects all rows alike. The report contains medians over the
// rounds: first the ratios to the table's base, then the absolute values, then the
// conditions. goal.go computes the goals from the tables.
//
// One process runs both hosts. Two processes would let Go use every core twice, once
// for each process. GOMAXPROCS is therefore twice the number of cores unless it is set.
// With less, an application would wait for the system calls of its own engine and of
// the other host.
package measure
