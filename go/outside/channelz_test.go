package outside

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials/insecure"

	tollfree "github.com/tollfree/tollfree/go"
)

// grpc-go's channelz service registers with a server of this package, and shows grpc-go's own connections.
func TestChannelzIsServedOverSharedMemory(t *testing.T) {
	other, err := grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	server := tollfree.NewServer()
	service.RegisterChannelzServiceToServer(server)
	listener, err := server.Listen(fmt.Sprintf("shm-abstract:channelz-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeListener(listener) }()
	conn, err := tollfree.NewClient(listener.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	shown, err := channelz.NewChannelzClient(conn).GetTopChannels(ctx, &channelz.GetTopChannelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, channel := range shown.Channel {
		found = found || channel.Data.Target == "passthrough:///nobody"
	}
	if !found {
		t.Errorf("%d connections are shown, and the test's is not among them", len(shown.Channel))
	}
	server.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
