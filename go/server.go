package tollfree

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/system"
)

var _ grpc.ServiceRegistrar = (*Server)(nil)

// A Server serves registered services over shared memory. Generated code, health.Server and reflection.Register take it in the
// place of a *grpc.Server. All methods are safe for use by several goroutines.
type Server struct {
	options *serverOptions
	handler stats.Handler          // nil: none
	plain   bool                   // nothing but a session is needed for calls without compression
	last    atomic.Pointer[method] // that was called, as the next one often is
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor

	mu        sync.Mutex
	services  map[string]*service
	methods   map[string]*method // by path; read without the lock once serving is set
	serving   bool
	stopped   bool
	listeners map[*Listener]bool
	loops     sync.WaitGroup // of Serve
	stopping  chan struct{}  // closed by Stop and GracefulStop
	admitted  atomic.Int32   // processes that gateways have named
	objects   atomic.Int64   // that have come
	abort     context.Context
	abortNow  context.CancelFunc // ends the wait of GracefulStop
	over      chan struct{}      // closed when Stop or GracefulStop has done its work
	overOnce  sync.Once
}

type service struct {
	impl any
	info grpc.ServiceInfo
}

// A method has either a unary handler or a stream's description.
type method struct {
	path   string
	impl   any
	unary  grpc.MethodHandler
	stream *grpc.StreamDesc
	// vt says that messages are encoded by vtprotobuf's methods where they have them; direct, if not nil, takes unary's place.
	vt     bool
	direct directHandler
	inline bool
	// inPlace says that bytes of requests are read in the pool.
	inPlace bool
	// objects is not nil of a method that takes and gives flat messages.
	objects *ObjectMethod
	// objectStream, if not nil, takes stream's place where objects can come.
	objectStream objectHandler
}

// NewServer makes a server without services.
func NewServer(options ...ServerOption) *Server {
	o := newServerOptions(options)
	s := &Server{
		options: o, handler: oneHandler(o.handlers), unary: chainUnary(o.unary), stream: chainStream(o.stream),
		services: map[string]*service{}, methods: map[string]*method{}, listeners: map[*Listener]bool{},
		over: make(chan struct{}), stopping: make(chan struct{}),
	}
	o.objectsOf = s.objectsOf
	s.plain = s.handler == nil && o.codec == nil && protobufIsOurs
	s.abort, s.abortNow = context.WithCancel(context.Background())
	return s
}

// RegisterService adds a service; generated code calls it. It panics where the program is wrong: the service is registered
// already, impl lacks a method, or the server serves already.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if impl != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			panic(fmt.Sprintf("tollfree: RegisterService of %s: the type %v does not implement %v", desc.ServiceName, got, want))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		panic(fmt.Sprintf("tollfree: RegisterService of %s after Serve: register services first", desc.ServiceName))
	}
	if s.services[desc.ServiceName] != nil {
		panic(fmt.Sprintf("tollfree: RegisterService of %s: it is registered already", desc.ServiceName))
	}
	added := &service{impl: impl, info: grpc.ServiceInfo{Metadata: desc.Metadata}}
	prefix := "/" + desc.ServiceName + "/"
	for i := range desc.Methods {
		m := &desc.Methods[i]
		s.methods[prefix+m.MethodName] = &method{path: prefix + m.MethodName, impl: impl, unary: m.Handler, inline: s.options.inline[prefix+m.MethodName], inPlace: s.options.inPlace[prefix+m.MethodName]}
		added.info.Methods = append(added.info.Methods, grpc.MethodInfo{Name: m.MethodName})
	}
	for i := range desc.Streams {
		m := &desc.Streams[i]
		s.methods[prefix+m.StreamName] = &method{path: prefix + m.StreamName, impl: impl, stream: m, inPlace: s.options.inPlace[prefix+m.StreamName]}
		added.info.Methods = append(added.info.Methods, grpc.MethodInfo{
			Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams,
		})
	}
	s.services[desc.ServiceName] = added
}

// GetServiceInfo lists the services, for reflection.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, added := range s.services {
		all[name] = added.info
	}
	return all
}

// A Listener is an address that a server has bound.
type Listener struct {
	server   *Server
	listener call.Listener
}

// Address is what Listen was given.
func (l *Listener) Address() string { return l.listener.Address() }

// Close gives the address back. ServeListener returns then.
func (l *Listener) Close() error {
	l.server.forget(l)
	return l.listener.Close()
}

// Listen binds "shm:///run/app/greeter.sock" or "shm-abstract:greeter". Clients that come before ServeListener wait.
func (s *Server) Listen(address string) (*Listener, error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	l, err := s.bind(func() (call.Listener, error) { return s.options.listen(address) })
	if err != nil && err != grpc.ErrServerStopped {
		return nil, fmt.Errorf("tollfree: listen at %s: %w", address, err)
	}
	return l, err
}

// bind has the server serve what listen gives.
func (s *Server) bind(listen func() (call.Listener, error)) (*Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, grpc.ErrServerStopped
	}
	if err := system.Check(); err != nil {
		return nil, err
	}
	bound, err := listen()
	if err != nil {
		return nil, err
	}
	l := &Listener{server: s, listener: bound}
	s.listeners[l] = true
	return l, nil
}

// Serve binds address and serves there until Stop or GracefulStop, and returns nil then. It may be called for several addresses
// at once.
func (s *Server) Serve(address string) error {
	l, err := s.Listen(address)
	if err != nil {
		return err
	}
	return s.ServeListener(l)
}

// ServeListener serves what this server's Listen has returned until it is closed, or until Stop or GracefulStop, and returns
// nil then.
func (s *Server) ServeListener(l *Listener) error {
	s.mu.Lock()
	if l.server != s {
		s.mu.Unlock()
		return fmt.Errorf("tollfree: serve at %s: the listener is another server's", l.Address())
	}
	if s.stopped {
		s.mu.Unlock()
		return grpc.ErrServerStopped
	}
	s.serving = true
	s.loops.Add(1)
	s.mu.Unlock()
	err := l.listener.Serve(s.asService())
	s.loops.Done()
	if err != nil {
		l.Close()
		return fmt.Errorf("tollfree: serve at %s: %w", l.Address(), err)
	}
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	if stopped {
		<-s.over // A program may exit when this returns: calls are answered until GracefulStop has returned.
	}
	return nil
}

// asService is what the transport has to know.
func (s *Server) asService() call.Service {
	return call.Service{Handler: s.handle, Inline: s.inline, Session: s.session}
}

func (s *Server) forget(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// stop has the server bind and serve no more, and returns what it is bound to.
func (s *Server) stop() []*Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	all := make([]*Listener, 0, len(s.listeners))
	for l := range s.listeners {
		all = append(all, l)
	}
	return all
}

// Stop ends all sessions and calls. Contexts of handlers are cancelled; it does not wait for those that go on regardless.
func (s *Server) Stop() {
	s.abortNow()
	for _, l := range s.stop() {
		l.Close()
	}
	s.loops.Wait()
	s.overOnce.Do(func() { close(s.over) })
}

// GracefulStop takes no new sessions and calls, and waits until the calls under way have ended. Clients move on to other
// servers without a failed call. Stop cuts the wait short.
func (s *Server) GracefulStop() {
	var drains sync.WaitGroup
	for _, l := range s.stop() {
		drains.Go(func() {
			l.listener.Drain(s.abort) // An error says that Stop was called.
			l.Close()
		})
	}
	drains.Wait()
	s.loops.Wait()
	s.overOnce.Do(func() { close(s.over) })
}

func (s *Server) session(ctx context.Context, p call.Peer) (context.Context, func()) {
	from := peerOf(p)
	of := &client{agent: []string{p.Agent}, gateway: p.Gateway}
	if p.Neighbor {
		of.neighbor = neighborCaller(p)
	}
	ctx, end := beginSession(context.WithValue(peer.NewContext(ctx, from), clientKey{}, of), s.handler, from, false)
	of.session = ctx
	return ctx, end
}

func (s *Server) inline(path string) bool {
	m := s.method(path)
	return m != nil && m.inline
}

// method is nil where nobody has registered it.
func (s *Server) method(path string) *method {
	if last := s.last.Load(); last != nil && last.path == path {
		return last
	}
	m := s.methods[path]
	if m != nil {
		s.last.Store(m)
	}
	return m
}

// handle serves one call, on a goroutine of the transport's. A panic of the service's ends the process, as in grpc-go.
func (s *Server) handle(from call.ServerCall) {
	path := from.Method()
	m := s.method(path)
	if s.servePlain(from, m) {
		return
	}
	if from.Peer().Gateway && isReserved(path) {
		switch path {
		case admitMethod:
			s.admit(from)
			return
		case describeMethod:
			s.describe(from)
			return
		case joinMethod:
			s.join(from)
			return
		case moveMethod:
			from.Finish(nil, nil, status.Convert(moveOn(from)), nil)
			return
		}
	}
	if m == nil && s.options.unknown != nil && !isReserved(path) {
		m = &method{path: path, stream: s.options.unknown}
	}
	c, err := s.newCall(from, m)
	switch {
	case err != nil:
		from.Finish(nil, nil, status.Convert(err), nil)
	case m == nil:
		from.Finish(nil, nil, s.unknown(path), nil)
	case m.unary != nil:
		c.serveUnary()
	default:
		c.serveStream()
	}
}

// isReserved says of a method that it is the protocol's own, which a gateway may ask for and a server may lack.
func isReserved(path string) bool {
	for _, service := range [...]string{objectsService, directService, gatewayService} {
		if strings.HasPrefix(path, service) {
			return true
		}
	}
	return false
}

// unknown is the status of a call that nobody serves.
func (s *Server) unknown(path string) *status.Status {
	slash := strings.LastIndexByte(path, '/')
	if slash < 1 || path[0] != '/' {
		return status.Newf(codes.Unimplemented, "tollfree: %q is no path of a method", path)
	}
	name := path[1:slash]
	if s.services[name] == nil {
		return status.Newf(codes.Unimplemented, "tollfree: unknown service %s", name)
	}
	return status.Newf(codes.Unimplemented, "tollfree: unknown method %s of service %s", path[slash+1:], name)
}
