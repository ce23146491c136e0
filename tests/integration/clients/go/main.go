// The control API from Go: grpc-go, with stubs made by protoc-gen-go.
//
//	client unix:SOCKET                  prints one JSON object: what it saw
//	client HOST:PORT CA CERT KEY        the same by mutual TLS
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	v1 "spillway.test/client/spillwayv1"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Plain, or what the three files say.
func transport(files []string) credentials.TransportCredentials {
	if len(files) == 0 {
		return insecure.NewCredentials()
	}
	ca, err := os.ReadFile(files[0])
	must(err)
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		must(errors.New("no authority in " + files[0]))
	}
	own, err := tls.LoadX509KeyPair(files[1], files[2])
	must(err)
	return credentials.NewTLS(&tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}})
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(transport(os.Args[2:])))
	must(err)
	seen := map[string]any{}
	health, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	must(err)
	seen["health"] = health.Status.String()

	limits := v1.NewLimitsClient(conn)
	watch, err := v1.NewChangesClient(conn).Watch(ctx, &v1.WatchChangesRequest{})
	must(err)
	first, err := watch.Recv()
	must(err)
	if first.Snapshot == nil {
		must(errors.New("no snapshot"))
	}
	set, err := limits.Set(ctx, &v1.SetLimitRequest{Account: proto.String("main"),
		Rate: &v1.Rate{Text: proto.String("150/s")}, Burst: proto.Uint64(300)})
	must(err)
	seen["set"] = set.Limit.Rate.GetText()
	seen["version"] = set.Limit.GetVersion()
	for seen["watched"] == nil {
		reply, err := watch.Recv()
		must(err)
		for _, change := range reply.Changes {
			if change.GetKind() == "limit" {
				seen["watched"] = []any{change.GetAfter(), change.GetAccountVersion()}
			}
		}
	}
	var trailer metadata.MD
	_, err = limits.Set(ctx, &v1.SetLimitRequest{Account: proto.String("main"),
		Rate: &v1.Rate{Text: proto.String("no rate")}}, grpc.Trailer(&trailer))
	seen["refused"] = []any{int(status.Code(err)), trailer.Get("spillway-field")[0]}

	replace, err := v1.NewRatesClient(conn).Replace(ctx)
	must(err)
	for _, part := range []*v1.ReplaceRatesRequest{
		{Part: &v1.ReplaceRatesRequest_Header{Header: &v1.RatesHeader{Source: proto.String("go-test"),
			AsOf: proto.String(time.Now().UTC().Format("2006-01-02"))}}},
		{Part: &v1.ReplaceRatesRequest_Rows{Rows: &v1.RateRows{Rows: []*v1.RateRow{{State: proto.String("WA"),
			Zip5: proto.Uint32(98110), CombinedPpb: proto.Uint32(92000000)}}}}},
		{Part: &v1.ReplaceRatesRequest_End{End: &v1.RatesEnd{Rows: proto.Uint64(1)}}},
	} {
		must(replace.Send(part))
	}
	table, err := replace.CloseAndRecv()
	must(err)
	seen["rates"] = table.GetRows()

	export, err := v1.NewFlagsClient(conn).Export(ctx, &v1.ExportFlagsRequest{})
	must(err)
	flags := 0
	for {
		_, err := export.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		flags++
	}
	seen["flags"] = flags
	must(json.NewEncoder(os.Stdout).Encode(seen))
}
