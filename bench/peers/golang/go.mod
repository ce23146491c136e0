module spillway/bench/peers

go 1.23

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	go.uber.org/ratelimit v0.3.1 // indirect
	golang.org/x/time v0.8.0 // indirect
)
