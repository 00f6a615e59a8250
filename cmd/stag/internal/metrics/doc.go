// Package metrics is what `stag metrics` exports to Prometheus.
//
//	family.go    every metric that there is, with its help: docs/metrics.md
//	sheet.go     the series of one scrape
//	engine.go    from the report of an engine to series
//	qp.go        likewise, of queue pairs, for those who ask for them
//	pinned.go    from programs that stay without an engine to series
//	scrape.go    asking all engines of this host at once, and not for ever
//	exporter.go  Gather and the collector for one scrape
//	serve.go     HTTP
//
// Four labels say whose a series is: program, pid, uid and adapter. What belongs to
// the steering program and not to who uses it has device and netns instead: it
// goes on when another engine adopts the program. The series of an engine end
// with it, so that rates and sums over engines do not jump.
package metrics
