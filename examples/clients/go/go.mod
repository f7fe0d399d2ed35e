module delayline.example/clients

go 1.19
