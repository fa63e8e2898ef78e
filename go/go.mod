module github.com/tollfree/tollfree/go

go 1.25.0
