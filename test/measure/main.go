// Command measure prints numbers for judging the shape of the code. For each package it
// prints how many references between files point up, and which structs have many
// fields. With -comments it prints comments chosen at random, for a reader to judge. It
// gives no verdict itself.
//
//	go run ./test/measure
//	go run ./test/measure -comments 100 -seed 7
//
// The files of a package are put in an order from top to bottom. A reference points up
// if its file is below the file that declares the name. measure searches for the order
// with the fewest references that point up. The search starts from random orders and
// moves one file at a time, so the number is an upper bound.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/types"
	"log"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	fields := flag.Int("fields", 40, "list structs with more `fields` than this")
	sample := flag.Int("comments", 0, "print so many comments, chosen at random")
	seed := flag.Uint64("seed", 1, "seed of that choice")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, patterns...)
	if err != nil {
		log.Fatalf("load packages: %v", err)
	}
	if packages.PrintErrors(pkgs) != 0 {
		log.Fatal("these packages do not build: mend them first")
	}
	if *sample > 0 {
		printComments(pkgs, *sample, *seed)
		return
	}
	up := 0
	fmt.Println("references between files that point up, by package")
	for _, p := range pkgs {
		n, all := pointUp(p)
		up += n
		if n > 0 {
			fmt.Printf("%5d of %4d  %s\n", n, all, p.PkgPath)
		}
	}
	fmt.Printf("%5d  in all\n\nstructs with more than %d fields\n", up, *fields)
	for _, p := range pkgs {
		printWide(p, *fields)
	}
}

// pointUp returns how many pairs of files of p refer to each other upwards in the best
// order, and how many pairs refer to each other at all.
func pointUp(p *packages.Package) (up, all int) {
	uses := make(map[[2]string]bool)
	file := func(o types.Object) string { return p.Fset.Position(o.Pos()).Filename }
	for id, o := range p.TypesInfo.Uses {
		if o.Pkg() != p.Types || !o.Pos().IsValid() {
			continue
		}
		from, to := p.Fset.Position(id.Pos()).Filename, file(o)
		if from != to {
			uses[[2]string{from, to}] = true
		}
	}
	names := make(map[string]bool)
	for e := range uses {
		names[e[0]], names[e[1]] = true, true
	}
	order := make([]string, 0, len(names))
	for n := range names {
		order = append(order, n)
	}
	slices.Sort(order)
	return fewest(order, uses), len(uses)
}

// fewest searches for the order of files in which the fewest references point up, and
// returns their number.
func fewest(order []string, uses map[[2]string]bool) int {
	rng := rand.New(rand.NewPCG(1, 1))
	best := count(order, uses)
	for range 20 {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for improved := true; improved; {
			improved = false
			for i := range order {
				improved = settle(order, i, uses) || improved
			}
		}
		best = min(best, count(order, uses))
	}
	return best
}

// settle moves the file at i to the place where the fewest of its references point up.
// It returns false if the file is at the best place already.
func settle(order []string, i int, uses map[[2]string]bool) bool {
	gain, at := 0, i
	for _, step := range []int{-1, 1} {
		sum := 0
		for j := i + step; j >= 0 && j < len(order); j += step {
			above, below := order[i], order[j] // the order if step is 1
			if step < 0 {
				above, below = below, above
			}
			sum += value(uses[[2]string{below, above}]) - value(uses[[2]string{above, below}])
			if sum > gain {
				gain, at = sum, j
			}
		}
	}
	if at == i {
		return false
	}
	f := order[i]
	copy(order[i:], order[i+1:])
	copy(order[at+1:], order[at:len(order)-1])
	order[at] = f
	return true
}

// value is 1 for true, 0 for false.
func value(b bool) int {
	if b {
		return 1
	}
	return 0
}

// count returns how many references point up in this order.
func count(order []string, uses map[[2]string]bool) (up int) {
	at := make(map[string]int, len(order))
	for i, n := range order {
		at[n] = i
	}
	for e := range uses {
		up += value(at[e[0]] > at[e[1]])
	}
	return up
}

// printWide lists the structs of p that have more fields than most.
func printWide(p *packages.Package, most int) {
	scope := p.Types.Scope()
	for _, name := range scope.Names() {
		t, ok := scope.Lookup(name).Type().Underlying().(*types.Struct)
		if _, isType := scope.Lookup(name).(*types.TypeName); ok && isType && t.NumFields() > most {
			fmt.Printf("%5d  %s.%s\n", t.NumFields(), p.PkgPath, name)
		}
	}
}

// printComments prints n comments of the packages, chosen at random with seed.
func printComments(pkgs []*packages.Package, n int, seed uint64) {
	var all []*ast.CommentGroup
	where := make(map[*ast.CommentGroup]string)
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			if ast.IsGenerated(f) {
				continue
			}
			for _, c := range f.Comments {
				if text := c.Text(); strings.TrimSpace(text) == "" {
					continue // a directive
				}
				all = append(all, c)
				at := p.Fset.Position(c.Pos())
				where[c] = fmt.Sprintf("%s/%s:%d", strings.TrimPrefix(p.PkgPath, "github.com/stag-rdma/stag/"), filepath.Base(at.Filename), at.Line)
			}
		}
	}
	slices.SortFunc(all, func(a, b *ast.CommentGroup) int { return strings.Compare(where[a], where[b]) })
	rng := rand.New(rand.NewPCG(seed, 2))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, c := range all[:min(n, len(all))] {
		fmt.Printf("%d. %s\n%s\n", i+1, where[c], c.Text())
	}
}
