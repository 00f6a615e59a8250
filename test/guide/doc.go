// Package guide follows the step-by-step pages of docs/ literally. It makes a machine
// for each of the two hosts (machine_test.go), and runs the page's commands on these
// machines in their order (page_test.go).
package guide
