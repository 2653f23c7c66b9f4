// A kubectl that stays. Two thirds of the processor time of a short command go into starting the program (93 ms for a
// get, 29 ms here); tests give thousands, so one process runs all: a line of JSON in for each, a line out when it ends.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

type request struct {
	ID   uint64   `json:"id"`
	Args []string `json:"args"`
}

type answer struct {
	ID     uint64 `json:"id"`
	Code   int    `json:"code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// What kubectl would end its process with.
type fatal struct {
	message string
	code    int
}

// Warnings go to whichever command began last, from any of them.
type output struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(bytes []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(bytes)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.String()
}

func main() {
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatal{message, code}) })
	var writing sync.Mutex
	answers := json.NewEncoder(os.Stdout)
	requests := bufio.NewReader(os.Stdin)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			// Whoever started us has ended.
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		go func() {
			done := run(asked)
			writing.Lock()
			defer writing.Unlock()
			_ = answers.Encode(done)
		}()
	}
}

func run(asked request) (done answer) {
	var stdout, stderr output
	var connections connections
	defer func() {
		if caught := recover(); caught != nil {
			ended, isFatal := caught.(fatal)
			if !isFatal {
				ended = fatal{fmt.Sprint("panic: ", caught), 2}
			}
			done.Code = ended.code
			fmt.Fprintln(&stderr, strings.TrimSuffix(ended.message, "\n"))
		}
		done.ID, done.Stdout, done.Stderr = asked.ID, stdout.String(), stderr.String()
		connections.close()
	}()
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag()
	flags = flags.WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	flags.WrapConfigFn = connections.note
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{
		Arguments:   append([]string{"kubectl"}, asked.Args...),
		ConfigFlags: flags,
		IOStreams:   genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr},
	})
	command.SetArgs(asked.Args)
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SilenceErrors = true
	cmdutil.CheckErr(command.Execute())
	return done
}

// Those of one command. The next one connects anew, as a process of its own would: a connection that was there before a
// test cut a cable says nothing about the cluster now.
type connections struct {
	lock       sync.Mutex
	transports []http.RoundTripper
}

func (c *connections) note(config *rest.Config) *rest.Config {
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.transports = append(c.transports, transport)
		return transport
	})
	return config
}

func (c *connections) close() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, transport := range c.transports {
		utilnet.CloseIdleConnectionsFor(transport)
	}
}
