// Package metrics implements `stag metrics`, an exporter for Prometheus.
//
//	family.go    the type of a metric and its series
//	list.go      every metric, with its help text: docs/metrics.md
//	sheet.go     the series of one scrape
//	engine.go    makes series from the report of an engine
//	qp.go        makes the series of queue pairs, with --per-qp
//	pinned.go    makes series from pinned programs without an engine
//	scrape.go    asks all engines of this host at the same time, with a time limit
//	exporter.go  the exporter, and the collector for one scrape
//	serve.go     HTTP
//
// Four labels identify the engine of a series: program, pid, uid and adapter. The series
// of a steering program have the labels device and netns instead, because they continue
// when another engine adopts the program. The series of an engine end with the engine, so
// that rates and sums over engines do not jump.
package metrics
