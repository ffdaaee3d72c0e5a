module github.com/edgelimit/edge/bench

go 1.26.0
