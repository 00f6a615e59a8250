// Package guide follows the step-by-step pages of docs/ literally: a machine for
// each of the two hosts (machine_test.go), and the page's commands run on them in
// their order (page_test.go).
package guide
